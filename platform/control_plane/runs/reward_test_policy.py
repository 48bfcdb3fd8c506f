"""Projects that accept only tested rewards. Checked when a run is submitted, and again before its first attempt."""

from __future__ import annotations

import json
import shlex

from control_plane.accounts.models import Project
from control_plane.assets.models import DatasetVersion, FunctionVersion
from control_plane.core.api.field_error import FieldError
from control_plane.experiments.models import RewardTest
from control_plane.runs.reward_fingerprint import reward_fingerprint
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.run_spec.reward_test import RewardTestSection


def untested_reward_error(
    project: Project, spec: RunSpec, function: FunctionVersion | None, version: DatasetVersion
) -> FieldError | None:
    """The error for a spec whose reward has no green test that the project requires; None otherwise.

    The newest complete test of the same reward (source or name, and options) on this dataset version decides.
    """
    if not project.tested_rewards or spec.kind != "rl":
        return None
    key = reward_fingerprint(spec.reward, function)
    tests = RewardTest.objects.filter(project=project, reward_key=key, dataset_version=version)
    ended = tests.exclude(result="").select_related("run", "dataset_version").order_by("-created_at", "-pk")
    newest = next((test for test in ended if is_complete(test)), None)
    if newest is not None and newest.result == "green":
        return None
    never = "none of its tests was complete (see `complete`)" if ended else "it was never tested"
    state = f"its newest test ({newest.pk}) was {newest.result}" if newest else never
    return FieldError(
        f"/reward/{'function' if spec.reward.function else 'name'}", "reward_not_tested",
        f"project {project.name!r} accepts only rewards with a green test on {version.ref}, and {state}: "
        f"{test_command(spec, version)}",
    )  # fmt: skip


def test_command(spec: RunSpec, version: DatasetVersion) -> str:
    """The command that tests the reward of this spec."""
    words = ["oolong", "reward", "test", "--dataset", version.ref, "--split", spec.dataset.split]
    if spec.model.checkpoint is not None:
        words += ["--checkpoint", spec.model.checkpoint]
    else:
        words += ["--model", spec.model.base_model or ""]
    words += ["--function", spec.reward.function] if spec.reward.function else ["--reward", spec.reward.name]
    for name, value in spec.reward.options.items():
        words += ["--option", f"{name}={json.dumps(value)}"]
    return shlex.join(words)


def is_complete(test: RewardTest) -> bool:
    """Whether the test ran all probes, on the default number of rows and with the default bounds, and with a success
    score that a completion can reach."""
    section = RewardTestSection.model_validate(test.run.spec["reward_test"])
    rows = test.dataset_version.splits.get(test.run.spec["dataset"]["split"], 0)
    reached = ((test.report or {}).get("range") or {}).get("max")
    return section.is_complete(available_rows=rows) and (reached is None or section.success_score <= reached)
