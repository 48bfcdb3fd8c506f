"""Facts for the lint beyond the spec itself: the dataset, model and pool that it names."""

from __future__ import annotations

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.models import BaseModel, DatasetVersion
from control_plane.experiments.models import RewardTest
from control_plane.fleet import selectors as fleet
from control_plane.fleet.access import team_may_use
from control_plane.fleet.snapshot import TeamQuota
from control_plane.runs.models import Run
from control_plane.runs.reward_fingerprint import reward_fingerprint
from oolong.contracts.run_spec import Facts, RunSpec
from oolong.contracts.run_spec.device import device_needed
from oolong.contracts.run_spec.memory import kv_bytes_per_token, shape_of
from oolong.contracts.run_spec.remote_rewards import remote_rewards

STEP_SECONDS = "time/step_seconds"


def lint_context(
    caller: Caller, spec: RunSpec, version: DatasetVersion | None, model: BaseModel | None
) -> Facts:
    """Facts about the names that could be resolved; the others are unknown, as is the model of a checkpoint."""
    config = model.config if model is not None else {}
    context = config.get("max_position_embeddings")
    if not team_may_use(spec.placement.pool, caller.project.team_id):
        nodes = []  # nodes of other teams' pools are not disclosed
    else:
        nodes = fleet.node_snapshots(spec.placement.pool)
    device = device_needed(spec, model.parameters if model is not None else None)
    sizes = [
        sum(device in (None, slot.device) for slot in (*node.free, *node.held)) for node in nodes
    ]  # slots of each node that suit the run
    slots = [slot for node in nodes for slot in (*node.free, *node.held)]
    gpus = [slot.memory_bytes for slot in slots if slot.device == "cuda" and slot.memory_bytes]
    latency, rate = _reward_speed(caller, spec, model)
    return Facts(
        reward_latency_seconds=latency,
        rollouts_per_second=rate,
        train_rows=version.sampled_rows(spec.dataset.split, spec.dataset.weights)
        if version is not None
        else None,
        parameters=model.parameters if model is not None else None,
        context_tokens=context if isinstance(context, int) else None,
        kv_bytes_per_token=kv_bytes_per_token(config),
        shape=shape_of(config),
        slot_memory_bytes=min(gpus, default=None),
        pool_devices=frozenset(slot.device for slot in slots),
        pool_gpu_memory_bytes=max(gpus, default=None),
        largest_node_slots=max(sizes) if any(sizes) else None,
        team_limit_slots=fleet.team_quotas(spec.placement.pool)
        .get(caller.project.team_id, TeamQuota())
        .limit,
    )


def _reward_speed(
    caller: Caller, spec: RunSpec, model: BaseModel | None
) -> tuple[float | None, float | None]:
    """Median latency of the newest test of a remote reward, and the rollouts a second of the newest run."""
    if not remote_rewards(spec.model_dump(mode="json", include={"kind", "reward"})):
        return None, None
    key = reward_fingerprint(spec.reward, None)
    tests = RewardTest.objects.filter(project=caller.project, reward_key=key, report__isnull=False)
    test = tests.order_by("-created_at", "-pk").first()
    latency = ((test.report or {}).get("latency_seconds") or {}).get("p50") if test is not None else None
    runs = Run.objects.filter(
        project=caller.project, kind="rl", base_model=model, spec__placement__pool=spec.placement.pool,
        metrics__has_key=STEP_SECONDS,
    )  # fmt: skip
    run = runs.order_by("-pk").first() if model is not None else None
    if run is None or not run.metrics[STEP_SECONDS]:
        return latency, None
    rollouts = run.spec["trainer"]["groups_per_step"] * run.spec["rollout"]["group_size"]
    return latency, rollouts / run.metrics[STEP_SECONDS]
