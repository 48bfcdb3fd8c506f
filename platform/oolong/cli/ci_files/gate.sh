#!/usr/bin/env bash
# A gate in CI, from a dataset to a checkpoint that is verified and promoted. A test runs this very script.
#
#   gate.sh DATASET_FILE SPEC_FILE ALIAS
#
# OOLONG_URL, OOLONG_TOKEN   where, and as whom; scopes: datasets:write runs:write checkpoints:write, and their :read
# GATE_DATASET               name of the dataset (default: that of the file)
# GATE_MAPPING               which column is what (default: --prompt-column prompt --answer-column answer)
# GATE_SET                   fields of the spec, one a line: trainer.total_train_steps=100
# GATE_ASSERT                assertions, one a line: eval/accuracy >= 0.8
# GATE_COMPARE, GATE_BASELINE  metrics and what they are compared with, one a line: eval/accuracy, alias:prod
# GATE_TOLERANCE             how much worse than the baseline is accepted (default: 0)
# GATE_CONFIDENCE            how sure a failure must be (default: 0.99)
# GATE_SIGMA                 standard deviation of one run's value, where it is known
# GATE_DETECT                undecided when the noise hides a regression of this size (default: never for this)
# GATE_INVESTIGATE           what an undecided comparison is: fail or pass (default: fail)
# GATE_KEY                   the run is made once for this key; give the commit (default: none)
# GATE_TIMEOUT               seconds (default: 21600)
# GATE_OUT                   folder for the reports and the checkpoint (default: oolong-out)
#
# The run trains on exactly the uploaded file. report.xml is written however the script ends, and has a failure or an
# error exactly when it exits with something else than 0.
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
rm -f "$out"/{report.xml,summary.md,faults.jsonl,dataset,run,run.json,checkpoint.json,checkpoint.tar}

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

stage=token
# What ended the script outside of the wait is an error in the report, too.
report() {
  local status=$?
  [ "$status" -eq 0 ] || python3 - "$out/report.xml" "$stage" "exit $status: $(meaning "$status")" << 'END' || true
import sys, xml.etree.ElementTree as xml
path, stage, message = sys.argv[1:]
counts = {"tests": "0", "failures": "0", "errors": "0", "skipped": "0"}
try:
    root = xml.parse(path).getroot()
except (OSError, xml.ParseError):
    root = xml.Element("testsuites", name="oolong", **counts)
    xml.SubElement(root, "testsuite", name="oolong", **counts)
if root.get("failures") == root.get("errors") == "0":
    case = xml.SubElement(root[0], "testcase", classname="oolong.gate", name=stage, time="0")
    xml.SubElement(case, "error", message=message, type="gate").text = message
    for element in (root, root[0]):
        element.set("tests", str(int(element.get("tests")) + 1))
        element.set("errors", "1")
    xml.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
END
}
trap report EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# An option for each line of a text.
options=()
each() {
  local option=$1 line
  while IFS= read -r line; do
    [ -z "$line" ] || options+=("$option" "$line")
  done <<< "${2:-}"
}

patiently oolong whoami

echo "== dataset" >&2
stage=dataset
patiently oolong dataset validate "$data" "${mapping[@]}" --report "$out/faults.jsonl" >&2
dataset=$(patiently oolong dataset upload "$data" --name "$name" "${mapping[@]}")
echo "$dataset" > "$out/dataset"

echo "== run" >&2
stage=run
# By its id: name@latest may mean another upload, and a file that was uploaded before keeps its old version.
each --set "${GATE_SET:-}"
options+=(--dataset "$dataset")
patiently oolong run validate -f "$spec" "${options[@]}" >&2
run=$(patiently oolong run create -f "$spec" "${options[@]}" ${GATE_KEY:+--dedupe-key "$GATE_KEY"})
echo "$run" > "$out/run"

echo "== wait for $run" >&2
stage=wait
options=()
each --assert "${GATE_ASSERT:-}"
each --compare "${GATE_COMPARE:-}"
each --baseline "${GATE_BASELINE:-}"
each --tolerance "${GATE_TOLERANCE:-}"
each --confidence "${GATE_CONFIDENCE:-}"
each --sigma "${GATE_SIGMA:-}"
each --detect "${GATE_DETECT:-}"
each --investigate "${GATE_INVESTIGATE:-}"
cancelled=""
trap 'cancelled=yes' INT TERM
# Not repeated, for it bears an outage of minutes by itself. Beside the script, so that a cancelled job reaches it.
oolong run wait "$run" "${options[@]}" --timeout "${GATE_TIMEOUT:-21600}" --cancel-on-interrupt \
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
trap 'exit 130' INT
trap 'exit 143' TERM
if [ "$status" -ne 0 ]; then
  echo "== not promoted: exit $status ($(meaning "$status")); $alias stays as it was" >&2
  echo "the run: $OOLONG_URL/runs/$run, its last words: oolong run logs $run --tail 40" >&2
  exit "$status"
fi

echo "== checkpoint" >&2
stage=checkpoint
# What the run left; of an eval run, what it scored.
facts=$(python3 - "$out/run.json" << 'END'
import json, sys
run = json.load(open(sys.argv[1]))
scored = run["model"]["id"] if run["model"]["kind"] == "checkpoint" else ""
left = (run["latest_checkpoint"] or {}).get("id", "")
print(run["kind"], run["dataset"]["id"], scored if run["kind"] == "eval" else left)
END
)
read -r kind used checkpoint <<< "$facts"
[ -n "$checkpoint" ] || { echo "$run has no checkpoint to promote" >&2; exit 2; }
[ "$used" = "$dataset" ] || { echo "$run used the dataset $used, not the uploaded $dataset" >&2; exit 6; }
patiently oolong checkpoint get "$checkpoint" --json > "$out/checkpoint.json"
patiently oolong checkpoint download "$checkpoint" -o "$out/checkpoint.tar"

# The download was verified on its way. Once more, with what every system has: the archive, and the manifest in it.
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["checkpoint"][sys.argv[2]])' "$@"; }
echo "$(field "$out/checkpoint.json" tar_sha256)  $out/checkpoint.tar" | sha256sum --check --quiet
manifest=$(tar -xOf "$out/checkpoint.tar" MANIFEST.json | sha256sum | cut -d ' ' -f 1)
[ "$manifest" = "$(field "$out/checkpoint.json" sha256)" ] || { echo "the manifest is not the checkpoint's" >&2; exit 1; }

stage=promotion
lineage=(--trained-by "$run" --trained-on "$dataset")
[ "$kind" != eval ] || lineage=()
patiently oolong checkpoint promote "$checkpoint" "$alias" ${lineage[@]+"${lineage[@]}"}
echo "$alias is $run, verified in $out/checkpoint.tar" >&2
