"""Projects that take only rewards with a green test: asked when a run is made, and again before it first starts."""

from __future__ import annotations

import json
import shlex

from control_plane.accounts.models import Project
from control_plane.assets.models import DatasetVersion, FunctionVersion
from control_plane.core.api.field_error import FieldError
from control_plane.experiments.models import RewardTest
from control_plane.runs.reward_fingerprint import reward_key
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.run_spec.reward_test import RewardTestSection


def untested_reward(
    project: Project, spec: RunSpec, function: FunctionVersion | None, version: DatasetVersion
) -> FieldError | None:
    """The fault of a spec whose reward may not train here; None where it may.

    The newest complete test of this very reward (source or name, and options) on this dataset version decides.
    """
    if not project.tested_rewards or spec.kind != "rl":
        return None
    key = reward_key(spec.reward, function)
    of_it = RewardTest.objects.filter(project=project, reward_key=key, dataset_version=version)
    ended = of_it.exclude(verdict="").select_related("run", "dataset_version").order_by("-created_at", "-pk")
    newest = next((test for test in ended if is_complete(test)), None)
    if newest is not None and newest.verdict == "green":
        return None
    never = "no test of it was complete (see `complete`)" if ended else "it was never tested"
    said = f"its newest test ({newest.pk}) was {newest.verdict}" if newest else never
    return FieldError(
        f"/reward/{'function' if spec.reward.function else 'name'}", "reward_not_tested",
        f"project {project.name!r} takes only rewards with a green test on {version.ref}, and {said}: "
        f"{test_command(spec, version)}",
    )  # fmt: skip


def test_command(spec: RunSpec, version: DatasetVersion) -> str:
    """The test of this spec's very reward, as one types it: options belong to the reward, the model renders prompts."""
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
    """Whether the test tried what a project that asks for green ones wants to know: all probes, on the usual number of
    rows and with the usual bound on failures, and counting as right what some completion can reach."""
    section = RewardTestSection.model_validate(test.run.spec["reward_test"])
    rows = test.dataset_version.splits.get(test.run.spec["dataset"]["split"], 0)
    reached = ((test.report or {}).get("range") or {}).get("max")
    return section.is_complete(available_rows=rows) and (reached is None or section.success_score <= reached)
