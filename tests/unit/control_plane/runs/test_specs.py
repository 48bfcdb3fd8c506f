"""What a submitted spec is checked for, and where the pointer goes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from control_plane.runs.models import Run
from oolong.contracts.run_spec import spec_errors


def faults(alice: Any, **changes: Any) -> dict[str, tuple[str, str]]:
    reply = alice.post("/runs/validate", {"spec": alice.spec(**changes)})
    assert reply.status_code == 200
    document = reply.json()
    assert document["valid"] == (not document["errors"])
    return {error["pointer"]: (error["code"], error["message"]) for error in document["errors"]}


def test_a_sound_spec_is_resolved_with_every_default_and_exact_names(alice: Any) -> None:
    resolved = alice.post("/runs/validate", {"spec": alice.spec(evaluation={"prompts": 64})}).json()[
        "resolved"
    ]
    assert resolved["dataset"]["version"].startswith("dsv_")
    assert resolved["model"]["base_model"].startswith("bm_")
    assert resolved["evaluation"]["dataset"] == resolved["dataset"]["version"]
    assert resolved["staleness"]["max"] == 4
    run = alice.run(evaluation={"prompts": 64})
    assert run["spec"] == resolved
    assert spec_errors(run["spec"]) == []


def test_an_unknown_key_is_refused_with_a_pointer_to_it(alice: Any) -> None:
    assert faults(alice, rollout={"groop_size": 4})["/rollout/groop_size"][0] == "unknown_key"


def test_truncated_sampling_is_refused_with_its_reason(alice: Any) -> None:
    code, message = faults(alice, rollout={"top_p": 0.9})["/rollout/top_p"]
    assert code == "truncated_sampling"
    assert "importance weights" in message


def test_all_errors_are_reported_at_once(alice: Any) -> None:
    found = faults(
        alice, dataset={"version": "nothing@1"}, model={"base_model": "none"}, reward={"name": "magic"}
    )
    assert {pointer: code for pointer, (code, _) in found.items()} == {
        "/model/base_model": "unknown_model",
        "/dataset/version": "unknown_dataset",
        "/reward/name": "unknown_reward",
    }


def test_misspelt_options_are_refused_at_submission_with_all_other_faults(alice: Any) -> None:
    parts = [{"name": "exact_mach"}, {"name": "length", "options": {"full_untill": 1, "zero_from": "x"}}]
    found = faults(
        alice, model={"base_model": "none"}, reward={"name": "composite", "options": {"parts": parts}},
        evaluation={"prompts": 4, "reward": {"options": {"extract": "boxed", "ignore_case": "maybe"}}},
    )  # fmt: skip
    where = "/reward/options/parts"
    assert {pointer: code for pointer, (code, _) in found.items()} == {
        f"{where}/0/name": "unknown_reward",
        f"{where}/1/options/full_until": "missing",
        f"{where}/1/options/full_untill": "unknown_key",
        f"{where}/1/options/zero_from": "float_parsing",
        "/evaluation/reward/options/extract": "literal_error",
        "/evaluation/reward/options/ignore_case": "bool_parsing",
        "/model/base_model": "unknown_model",
    }
    assert "did you mean 'exact_match'?" in found[f"{where}/0/name"][1]
    assert "did you mean 'full_until'?" in found[f"{where}/1/options/full_untill"][1]
    assert alice.post("/runs", {"spec": alice.spec(reward={"options": {"patern": "x"}})}).status_code == 422


@pytest.mark.parametrize(
    ("changes", "pointer", "code", "says"),
    [
        ({"dataset": {"version": "sums", "split": "dev"}}, "/dataset/split", "unknown_split", "eval, train"),
        ({"trainer": {"groups_per_step": 128}}, "/dataset/split", "split_too_small", "64 rows"),
        ({"evaluation": {"prompts": 65}}, "/evaluation/split", "split_too_small", "evaluation.prompts=65"),
        ({"evaluation": {"split": "train", "prompts": 4}}, "/evaluation/split", "trained_on", "held-out"),
        ({"model": {"checkpoint": "ckpt_none"}}, "/model/checkpoint", "unknown_checkpoint", "ckpt_none"),
        ({"reward": {"name": "mine.py"}}, "/reward/name", "not_supported_yet", "function upload"),
        ({"reward": {"name": "exact_match", "options": {"source": "def f(): ..."}}}, "/reward/name",
         "not_supported_yet", "function upload"),
        ({"kind": "sft", "sft": {"validation_split": None}}, "/dataset/version", "no_completions", "64 of 64 rows"),
        ({"kind": "dpo"}, "/dataset/split", "no_pairs", "64 of 64 rows of sums@1 split 'train' have no pair"),
        ({"kind": "dpo", "dpo": {"validation_split": "train"}}, "/dpo/validation_split", "trained_on", "held-out"),
        ({"kind": "dpo", "dpo": {"validation_split": "dev"}}, "/dpo/validation_split", "unknown_split", "eval, train"),
        ({"placement": {"pool": "lake"}}, "/placement/pool", "unknown_pool", "use one of the team's pools: default"),
        ({"kind": "sft"}, "/sft/validation_split", "unknown_split", "validation"),
    ],
)  # fmt: skip
def test_what_is_named_must_be_there_and_big_enough(
    alice: Any, changes: dict[str, Any], pointer: str, code: str, says: str
) -> None:
    found_code, message = faults(alice, **changes)[pointer]
    assert found_code == code
    assert says in message


def test_a_dataset_of_pairs_is_for_dpo(alice: Any) -> None:
    rows = [
        {"q": f"{n}+1", "good": f"{n + 1}", "bad": "?", "split": "train" if n < 32 else "eval"}
        for n in range(48)
    ]
    mapping = {"prompt_column": "q", "answer_column": None, "chosen_column": "good", "rejected_column": "bad"}
    assert alice.dataset("pairs", rows, **mapping).status_code == 201
    dataset = {"version": "pairs@1", "split": "train"}
    assert faults(alice, dataset=dataset)["/dataset/version"][0] == "no_answers"
    dpo = {"validation_split": "eval", "validation_rows": 16}
    run = alice.run(kind="dpo", dataset=dataset, dpo=dpo)
    assert (run["kind"], run["total_train_steps"], run["slots_needed"]) == ("dpo", 60, 1)
    planned = alice.post("/runs/plan", {"spec": alice.spec(kind="dpo", dataset=dataset, dpo=dpo)}).json()
    assert [job["name"] for job in planned["plan"]["jobs"]] == ["trainer"]


def test_a_refused_spec_stores_nothing(alice: Any) -> None:
    reply = alice.post("/runs", {"spec": alice.spec(rollout={"top_p": 0.5})})
    assert (reply.status_code, reply.json()["code"]) == (422, "spec_invalid")
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert reply.json()["errors"][0]["pointer"] == "/rollout/top_p"
    assert not Run.objects.exists()


@pytest.mark.parametrize("body", [None, [], {}, {"spec": "text"}, {"spec": {}}])
def test_a_body_without_a_spec_is_refused(alice: Any, body: Any) -> None:
    assert alice.post("/runs", body).status_code == 422


@pytest.mark.parametrize("path", ["/runs", "/runs/validate", "/runs/plan"])
def test_a_key_beside_the_spec_that_nobody_reads_is_refused(alice: Any, path: str) -> None:
    for body, pointer, says in (
        (
            {"spec": alice.spec(), "dedupekey": "sha-1"},
            "/dedupekey",
            "unknown key 'dedupekey'; known: spec, template",
        ),
        ({"spec": "text"}, "/spec", "spec='text': an object"),
    ):
        reply = alice.post(path, body)
        [error] = reply.json()["errors"]
        assert (reply.status_code, error["pointer"]) == (422, pointer) and says in error["message"]
    assert not Run.objects.exists()


def test_a_dataset_is_named_by_id_number_latest_or_bare(alice: Any) -> None:
    first = alice.get("/dataset-versions/resolve?ref=sums@1").json()
    for reference in (first["id"], "sums@latest", "sums"):
        assert alice.get(f"/dataset-versions/resolve?ref={reference}").json() == first
    for reference in ("sums@2", "sums@-1", "sums@x", "other", "", "dsv_none"):
        assert alice.get(f"/dataset-versions/resolve?ref={reference}").status_code == 404


def test_presets_come_in_their_order_each_with_its_paper(alice: Any) -> None:
    found = alice.get("/presets").json()["data"]
    names = [preset["name"] for preset in found]
    assert names[:3] == ["letter-sum-sft", "letter-sum-rl", "areal-paper"] and names[-2:] == ["sft", "dpo"]
    assert {"grpo", "dr-grpo", "rloo", "reinforce-plus-plus", "ppo", "dapo", "gspo", "cispo"} <= set(names)
    for preset in found:
        assert (
            set(preset) == {"name", "title", "description", "paper", "spec", "fault"} and not preset["fault"]
        )
        of_a_paper = preset["spec"]["kind"] in ("rl", "dpo") and preset["name"] != "letter-sum-rl"
        assert preset["paper"].startswith("https://arxiv.org/abs/") == of_a_paper


def test_a_file_in_the_data_directory_is_a_preset_and_a_faulty_one_is_listed_with_its_fault(
    alice: Any, settings: Any, tmp_path: Path
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, data_dir=tmp_path)
    folder = tmp_path / "presets"
    folder.mkdir()
    text = "name: ours\ntitle: Ours\norder: 1\nspec: {kind: rl, algorithm: {clip_high: 0.3}}\n"
    (folder / "ours.yaml").write_text(text)
    (folder / "grpo.yaml").write_text(text.replace("ours", "grpo").replace("order: 1", "order: 2"))
    (folder / "bad.yaml").write_text(text.replace("clip_high", "clip_higher"))
    found = alice.get("/presets").json()["data"]
    assert [preset["name"] for preset in found][:2] == ["ours", "grpo"]
    assert [preset["title"] for preset in found if preset["name"] == "grpo"] == ["Ours"]
    [bad] = [preset for preset in found if preset["fault"]]
    assert bad["name"] == "bad" and "bad.yaml: /spec/algorithm/clip_higher: unknown key" in bad["fault"]
    asked = alice.post("/runs/validate", {"template": "bad", "spec": alice.spec()})
    assert asked.status_code == 422 and "clip_higher" in asked.json()["errors"][0]["message"]
    (folder / "rloo.yaml").write_text("title: [")
    names = [preset["name"] for preset in alice.get("/presets").json()["data"] if not preset["fault"]]
    assert "rloo" not in names, "the built-in preset does not stand in for the file that replaces it"


def test_the_same_idempotency_key_makes_one_run(alice: Any) -> None:
    body = {"spec": alice.spec()}
    first = alice.post("/runs", body, **{"Idempotency-Key": "once"})
    again = alice.post("/runs", body, **{"Idempotency-Key": "once"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replayed"] == "true"
    assert Run.objects.count() == 1
    long = alice.post("/runs", body, **{"Idempotency-Key": "x" * 256})
    assert (long.status_code, long.json()["detail"]) == (
        422,
        "Idempotency-Key has 256 characters; 255 at most",
    )
    other = alice.post("/runs", {"spec": alice.spec(name="other")}, **{"Idempotency-Key": "once"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


def test_lists_are_paged_by_cursor_without_a_gap_or_a_repeat(alice: Any) -> None:
    made = [alice.run(name=f"run {index}")["id"] for index in range(5)]
    seen, cursor = [], ""
    while True:
        page = alice.get(f"/runs?limit=2&cursor={cursor}").json()
        seen += [run["id"] for run in page["data"]]
        assert page["has_more"] == (page["next_cursor"] is not None)
        if not page["has_more"]:
            break
        cursor = page["next_cursor"]
    assert seen == made[::-1]
    assert alice.get("/runs?limit=0").json()["errors"][0]["pointer"] == "/limit"
    for foreign in ("%00", "a&limit=3", "AAAA", "ü"):
        assert alice.get(f"/runs?cursor={foreign}").status_code in (400, 422)
    assert alice.get(f"/runs/{made[0]}/events?cursor=eHg").status_code == 422
    assert [run["id"] for run in alice.get("/runs?name=run%203&status=queued").json()["data"]] == [made[3]]
    for name, word in (("status", "queued,NOPE"), ("kind", "ppo")):
        refused = alice.get(f"/runs?{name}={word}")
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, f"/{name}")
        assert "known: " in refused.json()["detail"]


def test_every_error_carries_the_request_id(alice: Any) -> None:
    reply = alice.get("/runs/run_none", **{"X-Request-Id": "from-ci-7"})
    assert reply.json()["request_id"] == reply.headers["X-Request-Id"] == "from-ci-7"
    odd = alice.get("/runs/run_none", **{"X-Request-Id": "a b\tc"})
    assert odd.headers["X-Request-Id"].startswith("req_")


def test_a_body_that_is_no_json_is_a_clear_refusal(alice: Any) -> None:
    reply = alice.client.post(
        "/api/v1/runs", data="{", content_type="application/json",
        headers={"authorization": f"Bearer {alice.token}"},
    )  # fmt: skip
    assert reply.status_code == 400
    assert "JSON" in json.loads(reply.content)["detail"]
