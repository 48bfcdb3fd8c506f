from pathlib import Path

import pytest
import yaml

from gpu_agents.agent.launch import environment
from gpu_agents.agent.records import JobRecord
from gpu_agents.agent.settings import DataDirectory
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.run_spec import RunSpec, WeightSyncSection, spec_errors
from tests.support.pages import block


def document(**changes):
    base = {"name": "first", "model": {"base_model": "bm_1"}, "dataset": {"version": "letters@1"}}
    return {**base, **changes}


def test_a_minimal_document_resolves_every_default():
    spec = RunSpec.model_validate(document())
    assert spec.staleness.max == 4
    assert spec.staleness.straggler_policy == "keep"
    assert RunSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(("bound", "policy"), [(0, "wait"), (1, "wait"), (2, "keep"), (8, "keep")])
def test_the_straggler_policy_follows_the_bound_unless_named(bound, policy):
    assert RunSpec.model_validate(document(staleness={"max": bound})).staleness.straggler_policy == policy
    named = RunSpec.model_validate(document(staleness={"max": bound, "on_straggler": "drop"}))
    assert named.staleness.straggler_policy == "drop"


def test_an_unknown_key_is_an_error_with_a_pointer_to_it():
    (error,) = spec_errors(document(rollout={"group_sise": 8}))
    assert error.pointer == "/rollout/group_sise"
    assert error.code == "unknown_key"
    assert "group_sise" in error.message


@pytest.mark.parametrize(
    ("key", "value"),
    [("top_p", 0.9), ("top_k", 50), ("min_p", 0.1), ("frequency_penalty", 0.5), ("logit_bias", {"7": 1.0})],
)
def test_truncated_sampling_is_refused_for_training_rollouts_with_the_reason(key, value):
    (error,) = spec_errors(document(rollout={key: value}))
    assert error.pointer == f"/rollout/{key}"
    assert error.code == "truncated_sampling"
    assert "full distribution" in error.message


def test_the_batch_must_divide_into_minibatches():
    (error,) = spec_errors(document(trainer={"groups_per_step": 30, "minibatches": 4}))
    assert error.pointer == "/trainer/minibatches"
    assert "30" in error.message and "4" in error.message


def test_a_group_of_one_is_refused_under_group_normalization_and_allowed_under_batch():
    (error,) = spec_errors(document(rollout={"group_size": 1}))
    assert error.pointer == "/rollout/group_size"
    batch = {"advantage": {"mean": "batch", "std": "batch"}}
    assert spec_errors(document(rollout={"group_size": 1}, algorithm=batch)) == []


def test_decoupled_ppo_without_a_proximal_policy_is_refused():
    (error,) = spec_errors(document(algorithm={"proximal": "none"}))
    assert error.pointer == "/algorithm/proximal"


@pytest.mark.parametrize("model", [{}, {"base_model": "bm_1", "checkpoint": "ckpt_1"}])
def test_the_model_has_exactly_one_source(model):
    (error,) = spec_errors(document(model=model))
    assert error.pointer == "/model"
    assert error.code == "model_source"


def test_all_faults_are_reported_at_once():
    errors = spec_errors(document(rollout={"top_p": 0.5, "groups": 3}, seed=-1, nonsense=1))
    assert {error.pointer for error in errors} == {"/rollout/top_p", "/rollout/groups", "/seed", "/nonsense"}


def secret(**changes):
    return {"name": "WANDB_KEY", "jobs": ["trainer"], **changes}


def test_a_secret_is_for_the_jobs_that_are_named_under_the_name_that_is_given():
    named = [secret(), secret(name="HUB", jobs=["reward", "trainer"], variable="HF_TOKEN")]
    spec = RunSpec.model_validate(document(secrets=named))
    assert [(secret.variable_name, secret.name, set(secret.jobs)) for secret in spec.secrets] == [
        ("WANDB_KEY", "WANDB_KEY", {JobKind.TRAINER}),
        ("HF_TOKEN", "HUB", {JobKind.REWARD, JobKind.TRAINER}),
    ]
    assert RunSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert spec_errors(document(secrets=[secret(), secret(jobs=["reward"])])) == [], "each job has it once"


@pytest.mark.parametrize(
    ("secrets", "pointer", "code", "said"),
    [
        ([secret(name="lower")], "/secrets/0/name", "string_pattern_mismatch", "lower"),
        ([secret(jobs=[])], "/secrets/0/jobs", "too_short", ""),
        ([secret(jobs=["engine"])], "/secrets/0/jobs/0", "enum", "engine"),
        ([secret(jobs=["trainer", "trainer"])], "/secrets/0/jobs", "doubled", "trainer"),
        ([secret(variable="A-B")], "/secrets/0/variable", "variable_name", "'A-B'"),
        ([secret(variable="1ST")], "/secrets/0/variable", "variable_name", "'1ST'"),
        ([secret(variable="A=B\0")], "/secrets/0/variable", "variable_name", "environment variable"),
        ([secret(variable="")], "/secrets/0/variable", "variable_name", ""),
        ([secret(value="x")], "/secrets/0/value", "unknown_key", "value"),
        ([secret(), secret()], "/secrets/1", "doubled", "WANDB_KEY twice"),
        (
            [secret(), secret(name="B", variable="WANDB_KEY")],
            "/secrets/1",
            "doubled",
            "as the secret WANDB_KEY and as B",
        ),
        ([secret(name=f"S{number}") for number in range(21)], "/secrets", "too_long", "20"),
    ],
)
def test_a_secret_that_cannot_be_given_is_refused_with_its_place(secrets, pointer, code, said):
    (error,) = spec_errors(document(secrets=secrets))
    assert (error.pointer, error.code) == (pointer, code), error
    assert said in error.message


def test_the_how_to_shows_a_section_that_is_right():
    page = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "secrets.md"
    shown = yaml.safe_load(block(page, "yaml"))
    assert spec_errors(document(**shown)) == []
    assert list(shown) == ["algorithm", "secrets"]


@pytest.mark.parametrize(
    "variable",
    ["PATH", "HOME", "PYTHONPATH", "pythonhome", "LD_PRELOAD", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "OOLONG_JOB",
     "OOLONG_SECRETS", "RANK", "LOCAL_RANK", "MASTER_ADDR", "NCCL_DEBUG", "HTTPS_PROXY", "no_proxy", "HF_HUB_OFFLINE",
     "BASH_ENV", "TORCHELASTIC_RUN_ID", "SSL_CERT_FILE", "LC_ALL"],
)  # fmt: skip
def test_no_secret_takes_the_place_of_a_variable_that_decides_how_a_job_runs(variable):
    (error,) = spec_errors(document(secrets=[secret(variable=variable)]))
    assert (error.pointer, error.code) == ("/secrets/0/variable", "reserved_variable")
    assert variable in error.message


def test_the_environment_that_a_job_has_anyway_is_reserved(tmp_path):
    record = JobRecord(
        job_id="job_1", run_id="run_1", attempt_id="att_1", epoch=1, name="trainer", kind=JobKind.TRAINER, index=0,
        slots=[], grace_seconds=1.0,
    )  # fmt: skip
    own = environment(DataDirectory(tmp_path), record, device="cuda")
    for variable in own:
        assert spec_errors(document(secrets=[secret(variable=variable)])), variable


@pytest.mark.parametrize(
    ("kind", "job", "has"),
    [
        ("sft", "reward", "trainer"),
        ("dpo", "rollout", "trainer"),
        ("eval", "trainer", "controller, reward, rollout"),
    ],
)
def test_a_job_that_the_run_has_not_is_refused(kind, job, has):
    (error,) = spec_errors(document(kind=kind, secrets=[secret(jobs=[job])]))
    assert (error.pointer, error.code) == ("/secrets/0/jobs", "no_such_job")
    assert error.message.endswith(f"it has {has}")


def test_slots_needed_counts_engines_only_for_rl():
    assert (
        RunSpec.model_validate(document(rollout={"engines": 3}, trainer={"num_ranks": 2})).slots_needed == 5
    )
    for kind in ("sft", "dpo"):
        assert RunSpec.model_validate(document(kind=kind, rollout={"engines": 3})).slots_needed == 1


def test_dpo_scores_no_completions():
    (error,) = spec_errors(document(kind="dpo", evaluation={"prompts": 4}))
    assert (error.pointer, error.code) == (
        "/evaluation",
        "option_of_rl",
    ) and "dpo.validation_split" in error.message


@pytest.mark.parametrize(
    ("field", "value", "said"), [("beta", 0, "0"), ("label_smoothing", 0.5, "0.5"), ("steps", 0, "0")]
)
def test_a_value_of_dpo_outside_of_its_range_is_refused(field, value, said):
    (error,) = spec_errors(document(kind="dpo", dpo={field: value}))
    assert error.pointer == f"/dpo/{field}" and said in error.message


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("rollout", "group_size", "many", "'many'"),
        ("trainer", "learning_rate", -1, "-1"),
        ("trainer", "learning_rate", float("inf"), "finite"),
        ("workflow", "name", "x" * 500, "'xxx"),
    ],
)
def test_a_fault_of_one_value_names_the_value_briefly(section, key, value, said):
    faults = [f for f in spec_errors({section: {key: value}}) if f.pointer == f"/{section}/{key}"]
    assert len(faults) == 1
    assert said in faults[0].message
    assert len(faults[0].message) < 250


def test_an_option_of_another_workflow_is_refused_with_the_workflow_that_has_it():
    (error,) = spec_errors(document(workflow={"turn_discount": 0.9}))
    assert (error.pointer, error.code) == ("/workflow/turn_discount", "option_of_another_workflow")
    assert "turn_discount=0.9 is of workflow multi_turn" in error.message
    assert not spec_errors(document(workflow={"name": "multi_turn", "turn_discount": 0.9}))
    (error,) = spec_errors(document(workflow={"options": {"depth": 2}}))
    assert error.pointer == "/workflow/options"
    (error,) = spec_errors(document(workflow={"name": "multi_turn", "function": "mine@1"}))
    assert error.code == "two_workflows"
    resolved = RunSpec.model_validate(document()).model_dump(mode="json")
    assert not spec_errors(resolved), "a resolved spec names every option at its default"


def test_a_turn_that_can_never_be_whole_is_refused():
    (error,) = spec_errors(document(workflow={"max_trajectory_tokens": 100}))
    assert (error.pointer, error.code) == ("/workflow/max_trajectory_tokens", "turn_over_trajectory")


def test_the_probe_allows_what_the_rounding_of_the_type_makes() -> None:
    assert WeightSyncSection().tolerance("float32") == 1e-3
    assert WeightSyncSection().tolerance("bfloat16") == 0.5, "bfloat16 rounds by 0.02 nats and more"
    assert WeightSyncSection(probe_tolerance=0.25).tolerance("bfloat16") == 0.25


@pytest.mark.parametrize(
    ("changes", "pointer", "says"),
    [
        ({"staleness": {"max": True}}, "/staleness/max", "must be a number; it is true (YAML reads yes"),
        ({"rollout": {"temperature": False}}, "/rollout/temperature", "must be a number; it is false"),
        (
            {"trainer": {"learning_rate": float("nan")}},
            "/trainer/learning_rate",
            "a finite number; it is nan",
        ),
        ({"trainer": {"learning_rate": "1e999"}}, "/trainer/learning_rate", "a finite number; it is '1e999'"),
        (
            {"workflow": {"function": "w@1", "options": {"a": [1, float("-inf")]}}},
            "/workflow/options/a/1",
            "must be a finite number; it is -inf",
        ),
        (
            {"algorithm": {"objective": "sapo", "options": {"x": float("nan")}}},
            "/algorithm/options/x",
            "finite",
        ),
        (
            {"reward": "math"},
            "/reward",
            "must be a mapping with keys such as name, function, options; it is 'math'",
        ),
        ({"reward": {"options": [1]}}, "/reward/options", "must be a mapping of names to values; it is [1]"),
        (
            {"kind": "rll"},
            "/kind",
            "must be one of 'rl', 'sft', 'dpo', 'eval', 'reward_test', 'playground'; it is 'rll'; did you",
        ),
        ({"name": 5}, "/name", "must be text (in YAML, put it in quotes); it is 5"),
        ({"trainer": {"adam_betas": 3}}, "/trainer/adam_betas", "must be a list; it is 3"),
        ({"staleness": {"max": 1.5}}, "/staleness/max", "must be a whole number; it is 1.5"),
        ({"staleness": {"max": -1}}, "/staleness/max", "must be at least 0; it is -1"),
        ({"algorithm": {"dual_clip": 0.5}}, "/algorithm/dual_clip", "must be greater than 1; it is 0.5"),
        ({"name": ""}, "/name", "must have at least 1 character; it has 0"),
        (
            {"algorithm": {"mask_truncated": "maybe"}},
            "/algorithm/mask_truncated",
            "must be true or false; it is",
        ),
        ({"rollout": {"group_sise": 8}}, "/rollout/group_sise", "did you mean 'group_size'?"),
    ],
)
def test_a_fault_has_the_field_the_value_and_the_way_out_in_plain_words(changes, pointer, says):
    (error,) = spec_errors(document(**changes))
    assert error.pointer == pointer
    assert says in error.message, error.message


def test_no_sentence_of_pydantic_is_shown_for_any_field():
    """Every field with a value of a wrong type: the message is one of ours."""
    wrong = object()
    for name in RunSpec.model_fields:
        for value in (wrong, {"x": wrong}, [wrong]):
            for error in spec_errors(document(**{name: value})):
                assert "nput should" not in error.message and "valid " not in error.message, (name, error)


@pytest.mark.parametrize(
    ("changes", "pointer", "code"),
    [
        ({"kind": "eval"}, "/model/lora", "option_of_training"),
        ({"algorithm": {"advantage": {"estimator": "gae"}, "critic": {}}}, "/algorithm/critic", "critic_with_lora"),
        ({"trainer": {"compile": True}}, "/trainer/compile", "compile_with_lora"),
    ],
)  # fmt: skip
def test_lora_is_refused_beside_what_it_does_not_support(changes, pointer, code):
    model = {"base_model": "bm_1", "lora": {}}
    (error,) = spec_errors(document(model=model, **changes))
    assert (error.pointer, error.code) == (pointer, code)
    assert "lora" in error.message
    assert not spec_errors(document(model={"base_model": "bm_1"}, **changes))


@pytest.mark.parametrize(
    ("lora", "field"),
    [
        ({"rank": 0}, "rank"),
        ({"alpha": 0}, "alpha"),
        ({"targets": []}, "targets"),
        ({"targets": ["q_proj", "q_proj"]}, "targets"),
        ({"targets": ["lm_head"]}, "targets/0"),
    ],
)
def test_invalid_lora_fields_are_named(lora, field):
    (error,) = spec_errors(document(model={"base_model": "bm_1", "lora": lora}))
    assert error.pointer == f"/model/lora/{field}"
