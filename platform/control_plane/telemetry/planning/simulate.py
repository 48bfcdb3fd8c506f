"""A simulation of a spec on a number of devices: speed, idle time and staleness, and which split is fastest."""

from __future__ import annotations

from dataclasses import dataclass

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.models import BaseModel
from control_plane.core.api.errors import FieldError, Problem, unprocessable
from control_plane.fleet import selectors as fleet
from control_plane.fleet.access import team_may_use
from control_plane.runs.spec_resolution import Resolved, root_model
from control_plane.telemetry.planning.measurements import Measurements, measure_comparable_runs
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.run_spec.memory import kv_bytes_per_token
from oolong.planner import search
from oolong.planner.service_times import (
    GPUS,
    Gpu,
    ModelSize,
    from_data_sheet,
    from_measurements,
    gpu_named,
)
from oolong.planner.simulation import NoProgress
from oolong.planner.types import Layout, Lengths, ServiceTimes

DEFAULT_SPREAD = 0.75
ASSUMED_LENGTH_FRAC = 0.5  # of the limit, where no run of the model has finished
ASSUMED_PROMPT_TOKENS = 256
MAX_DEVICES = 1024


@dataclass(frozen=True)
class Wanted:
    """What the caller asks for beside the spec. None: as the spec has it, or as measured."""

    devices: int | None = None
    gpu: str | None = None
    mean_tokens: int | None = None
    spread: float | None = None


@dataclass(frozen=True)
class Source:
    kind: str  # measured, or data_sheet
    gpu: str | None  # of the data sheet
    from_runs: int
    lengths: str  # given, measured or assumed


@dataclass(frozen=True)
class RunSimulation:
    devices: int
    source: Source
    times: ServiceTimes
    lengths: Lengths
    plan: search.Plan
    total_train_steps: int
    advice: list[str]


def simulate_run(caller: Caller, resolved: Resolved, wanted: Wanted) -> RunSimulation:
    """Raises Problem (422) where the spec does not train by rollouts, or nothing is known of its service times."""
    spec = resolved.spec
    assert spec is not None
    if spec.kind != "rl":
        raise _invalid("/spec/kind", "not_rl", f"kind={spec.kind!r}: only runs of kind rl are simulated")
    devices = wanted.devices or spec.slots_needed
    model = root_model(resolved)
    measured = measure_comparable_runs(caller, spec, model)
    times, source = _service_times(caller, spec, model, measured, wanted)
    lengths, origin = _lengths(spec, measured, wanted)
    try:
        plan = search.plan(times, lengths, _layout(spec, lengths), devices=devices)
    except NoProgress as error:
        raise _invalid("/devices", "cannot_train", f"devices={devices}: {error}") from error
    return RunSimulation(
        devices, Source(source.kind, source.gpu, source.from_runs, origin), times, lengths, plan,
        spec.trainer.total_train_steps, _advice(plan),
    )  # fmt: skip


def _layout(spec: RunSpec, lengths: Lengths) -> Layout:
    rollout = spec.rollout
    in_cache = int(rollout.engine_max_total_tokens // (lengths.prompt + lengths.mean))
    return Layout(
        engines=rollout.engines,
        trainer_devices=spec.trainer.num_ranks,
        group_size=rollout.group_size,
        groups_per_step=spec.trainer.groups_per_step,
        max_staleness=spec.staleness.max,
        max_running=max(rollout.group_size, min(rollout.engine_max_running_requests, in_cache)),
        max_concurrent_groups=rollout.max_concurrent_groups,
        on_straggler="wait" if spec.staleness.straggler_policy == "wait" else "keep",
        interruptible=rollout.interruptible,
    )


def _lengths(spec: RunSpec, measured: Measurements, wanted: Wanted) -> tuple[Lengths, str]:
    limit = spec.rollout.max_new_tokens
    if wanted.mean_tokens is not None and wanted.mean_tokens > limit:
        message = f"mean_tokens={wanted.mean_tokens} is above rollout.max_new_tokens={limit}"
        raise _invalid("/mean_tokens", "too_long", message)
    found = measured.lengths
    if wanted.mean_tokens is not None:
        mean, origin = float(wanted.mean_tokens), "given"
    elif found is not None:
        mean, origin = min(found.mean, float(limit)), "measured"
    else:
        mean, origin = ASSUMED_LENGTH_FRAC * limit, "assumed"
    spread = wanted.spread or (found.spread if found is not None else None) or DEFAULT_SPREAD
    prompt = min(ASSUMED_PROMPT_TOKENS, spec.rollout.max_prompt_tokens)
    return Lengths(mean=max(1.0, mean), spread=spread, limit=limit, prompt=prompt), origin


def _service_times(
    caller: Caller, spec: RunSpec, model: BaseModel | None, measured: Measurements, wanted: Wanted
) -> tuple[ServiceTimes, Source]:
    """Measured times unless a GPU is named; else the data sheet of that GPU, or of the pool's."""
    if wanted.gpu is None:
        times = from_measurements(measured.times)
        if times is not None:
            return times, Source("measured", None, len(measured.times), "")
    gpu = _gpu(wanted.gpu) if wanted.gpu is not None else _gpu_of_pool(caller, spec.placement.pool)
    if gpu is None:
        raise _invalid(
            "/gpu",
            "no_service_times",
            f"No run of this base model has trained in pool {spec.placement.pool!r} long enough to measure, and no GPU "
            f"of that pool has a known data sheet. Give gpu, one of {', '.join(one.name for one in GPUS)}.",
        )
    size = _size_of(model)
    if size is None:
        raise _invalid(
            "/spec/model",
            "unknown_model_size",
            "The data sheet of a GPU needs the number of parameters and the config of a registered base model. "
            "Register the model (POST /models), or leave gpu out once a run of this model has trained.",
        )
    return from_data_sheet(gpu, size), Source("data_sheet", gpu.name, 0, "")


def _gpu(name: str) -> Gpu:
    found = gpu_named(name)
    if found is None:
        known = ", ".join(one.name for one in GPUS)
        raise _invalid("/gpu", "unknown_gpu", f"gpu={name!r} has no known data sheet. Known: {known}.")
    return found


def _gpu_of_pool(caller: Caller, pool: str) -> Gpu | None:
    if not team_may_use(pool, caller.project.team_id):
        return None
    return next((gpu for model in fleet.gpu_models(pool) if (gpu := gpu_named(model)) is not None), None)


def _size_of(model: BaseModel | None) -> ModelSize | None:
    if model is None or not model.parameters:
        return None
    cache = kv_bytes_per_token(model.config)
    return None if cache is None else ModelSize(model.parameters, cache, 2 * model.parameters)


def _advice(plan: search.Plan) -> list[str]:
    """Plain sentences on what to change, most useful first."""
    best, given = plan.best, plan.given
    sentences = []
    if given is not None and given.layout.devices == best.layout.devices:
        gain = best.performance.trained_tokens_per_second / given.performance.trained_tokens_per_second
        if given.layout.engines != best.layout.engines and gain > 1.03:
            sentences.append(
                f"{best.layout.engines} engines and {best.layout.trainer_devices} trainer ranks train {gain:.2f} times "
                f"as fast as {given.layout.engines} and {given.layout.trainer_devices}."
            )
    eta = best.layout.max_staleness
    if plan.sufficient_staleness < eta:
        sentences.append(
            f"A max staleness of {plan.sufficient_staleness} is as fast as {eta}, and its data is fresher."
        )
    faster = [row for row in plan.staleness if row.layout.max_staleness > eta]
    gain = max((row.performance.trained_tokens_per_second for row in faster), default=0.0)
    if gain > 1.1 * best.performance.trained_tokens_per_second:
        row = next(
            row for row in faster if row.performance.trained_tokens_per_second >= search.AS_FAST * gain
        )
        factor = row.performance.trained_tokens_per_second / best.performance.trained_tokens_per_second
        sentences.append(
            f"A max staleness of {row.layout.max_staleness} would be {factor:.2f} times as fast."
        )
    if best.performance.trainer_idle_frac > 0.2:
        share = f"{best.performance.trainer_idle_frac:.0%}"
        sentences.append(f"The trainer waits {share} of the time: another engine would be used fully.")
    return sentences


def _invalid(pointer: str, code: str, message: str) -> Problem:
    return unprocessable("invalid", message, [FieldError(pointer, code, message)])
