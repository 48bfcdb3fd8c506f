#!/usr/bin/env bash
# A gate in CI, from a dataset to a checkpoint that is promoted and verified. A test runs this very script.
#
#   gate.sh DATASET_FILE SPEC_FILE ALIAS
#
# OOLONG_URL, OOLONG_TOKEN   where, and as whom; scopes: datasets:write runs:write checkpoints:write, and their :read
# GATE_DATASET               name of the dataset (default: that of the file)
# GATE_MAPPING               which column is what (default: --prompt-column prompt --answer-column answer)
# GATE_ASSERT                assertions, one a line: eval/accuracy >= 0.8
# GATE_COMPARE, GATE_BASELINE  metrics and what they are held against, one a line: eval/accuracy, alias:prod
# GATE_KEY                   the run is made once for this key; say the commit (default: none)
# GATE_TIMEOUT               seconds (default: 21600)
# GATE_OUT                   folder for the reports and the checkpoint (default: oolong-out)
#
# Exits as `oolong run wait`: 0 passed, 2 wrong usage, 3 timeout, 4 token, 5 failed, 6 gate, 7 stopped, 8 try again.
set -euo pipefail

data=${1:?DATASET_FILE}
spec=${2:?SPEC_FILE}
alias=${3:?ALIAS}
: "${OOLONG_URL:?}" "${OOLONG_TOKEN:?}"
out=${GATE_OUT:-oolong-out}
name=${GATE_DATASET:-$(basename "${data%%.*}")}
read -ra mapping <<< "${GATE_MAPPING:---prompt-column prompt --answer-column answer}"
mkdir -p "$out"

# Exit status 8 is nobody's mistake, and every command here is safe to repeat.
patiently() {
  local status
  for pause in 10 30 60 0; do
    "$@" && return 0 || status=$?
    [ "$status" -eq 8 ] && [ "$pause" -gt 0 ] || return "$status"
    echo "trying again in $pause s" >&2
    sleep "$pause"
  done
}

meaning() {
  case $1 in
    2) echo "wrong usage" ;; 3) echo "GATE_TIMEOUT is over" ;; 4) echo "the token" ;; 5) echo "the run failed" ;;
    6) echo "a check does not hold, see $out/summary.md" ;; 7) echo "the run was stopped" ;;
    8) echo "infrastructure: safe to try again" ;; 130 | 143) echo "cancelled" ;; *) echo "unexpected" ;;
  esac
}

# An option for each line of a text.
each() {
  local option=$1 line
  while IFS= read -r line; do
    [ -z "$line" ] || checks+=("$option" "$line")
  done <<< "${2:-}"
}

patiently oolong whoami

echo "== dataset" >&2
patiently oolong dataset validate "$data" "${mapping[@]}" --report "$out/faults.jsonl" >&2
patiently oolong dataset upload "$data" --name "$name" "${mapping[@]}" > "$out/dataset"

echo "== run" >&2
patiently oolong run validate -f "$spec" >&2
run=$(patiently oolong run create -f "$spec" ${GATE_KEY:+--dedupe-key "$GATE_KEY"})
echo "$run" > "$out/run"

echo "== wait for $run" >&2
checks=()
each --assert "${GATE_ASSERT:-}"
each --compare "${GATE_COMPARE:-}"
each --baseline "${GATE_BASELINE:-}"
cancelled=""
trap 'cancelled=yes' INT TERM
# Not repeated, for it bears an outage of minutes by itself. Beside the script, so that a cancelled job reaches it.
oolong run wait "$run" "${checks[@]}" --timeout "${GATE_TIMEOUT:-21600}" --cancel-on-interrupt \
  --junit "$out/report.xml" --markdown "$out/summary.md" --json > "$out/run.json" &
waiter=$!
interrupted=""
trap 'interrupted=yes; kill -TERM "$waiter" || true' INT TERM
[ -z "$cancelled" ] || kill -TERM "$waiter" || true  # before there was anything to tell
while
  interrupted="" status=0
  wait "$waiter" || status=$?
  [ -n "$interrupted" ]  # the signal ended the wait, whose status says so; that of the waiter is still to come
do :; done
trap - INT TERM
if [ "$status" -ne 0 ]; then
  echo "== not promoted: exit $status ($(meaning "$status")); $alias stays as it was" >&2
  echo "the run: $OOLONG_URL/runs/$run, its last words: oolong run logs $run --tail 4000" >&2
  exit "$status"
fi

echo "== checkpoint" >&2
checkpoint=$run@latest
patiently oolong ckpt promote "$checkpoint" "$alias"
patiently oolong ckpt download "$checkpoint" -o "$out/checkpoint.tar"
patiently oolong ckpt show "$checkpoint" --json > "$out/checkpoint.json"

# The download was verified on its way. Once more, with what every system has: the archive, and the manifest in it.
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["checkpoint"][sys.argv[2]])' "$@"; }
echo "$(field "$out/checkpoint.json" tar_sha256)  $out/checkpoint.tar" | sha256sum --check --quiet
manifest=$(tar -xOf "$out/checkpoint.tar" MANIFEST.json | sha256sum | cut -d ' ' -f 1)
[ "$manifest" = "$(field "$out/checkpoint.json" sha256)" ] || { echo "the manifest is not the checkpoint's" >&2; exit 1; }
echo "$alias is $run, verified in $out/checkpoint.tar" >&2
