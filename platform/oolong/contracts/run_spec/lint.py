"""Rules that look across fields of a valid RunSpec, and at what is known of its model, rows and pool.

A rule is one line of `RULES`: its check says what is odd, with the values, or nothing. Errors refuse a submission;
warnings do not. Stored specs are never linted again, so a new rule breaks no run that exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from oolong.contracts.run_spec import memory
from oolong.contracts.run_spec.device import device_needed
from oolong.contracts.run_spec.remote_rewards import HttpOptions, JudgeOptions, RemoteOptions, remote_rewards
from oolong.contracts.run_spec.spec import RunSpec

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Facts:
    """What is known besides the spec. None: not known, and rules that need it keep silent."""

    train_rows: int | None = None
    parameters: int | None = None
    context_tokens: int | None = None
    kv_bytes_per_token: int | None = None  # of one engine, in 2-byte numbers
    shape: memory.ModelShape | None = None
    slot_memory_bytes: int | None = None  # of the smallest GPU of the pool
    pool_devices: frozenset[str] = frozenset()  # of the slots of the pool; empty: it has none yet
    pool_gpu_memory_bytes: int | None = None  # of its largest GPU
    largest_node_slots: int | None = None
    team_limit_slots: int | None = None
    reward_latency_seconds: float | None = None  # median of the newest test of the same remote reward
    rollouts_per_second: float | None = None  # that the newest run of the model and pool trained on


class LintFinding(BaseModel):
    severity: Severity
    code: str
    pointer: str  # JSON pointer into the spec
    message: str  # what is odd, with the values
    advice: str


@dataclass(frozen=True)
class Rule:
    code: str
    severity: Severity
    kind: Literal["rl", "sft", "dpo", "any"]
    pointer: str
    check: Callable[[RunSpec, Facts], str | None]
    advice: str


def lint(spec: RunSpec, facts: Facts | None = None) -> list[LintFinding]:
    """What the rules say, errors first, in the order of the table."""
    known = facts or Facts()
    found = []
    for rule in RULES:
        message = rule.check(spec, known) if rule.kind in ("any", spec.kind) else None
        if message:
            found.append(
                LintFinding(
                    severity=rule.severity, code=rule.code, pointer=rule.pointer, message=message,
                    advice=rule.advice,
                )
            )  # fmt: skip
    return sorted(found, key=lambda finding: finding.severity != "error")


# --- steps, batches, tokens


def _kv_too_small(spec: RunSpec, facts: Facts) -> str | None:
    one, cache = _longest(spec), spec.rollout.engine_max_total_tokens
    return f"one request may need {one} tokens, the engine's cache holds {cache}" if one > cache else None


def _policy_never_learns(spec: RunSpec, facts: Facts) -> str | None:
    critic, steps = spec.algorithm.critic, spec.trainer.total_train_steps
    if critic is None or critic.warmup_steps < steps:
        return None
    return f"warmup_steps={critic.warmup_steps} of total_train_steps={steps}: the policy is never updated"


def _reward_scale_zero(spec: RunSpec, facts: Facts) -> str | None:
    return "scale=0 gives every completion the same reward" if spec.reward.scale == 0 else None


def _reward_slower_than_rollouts(spec: RunSpec, facts: Facts) -> str | None:
    latency, rate = facts.reward_latency_seconds, facts.rollouts_per_second
    at_once = _completions_at_once(spec)
    if at_once is None or not latency or rate is None or at_once / latency >= rate:
        return None
    return (
        f"the reward's test measured {latency:.3g} s, so {at_once:g} completions at once are {at_once / latency:.3g} "
        f"scores a second; the newest run of this model trained on {rate:.3g} rollouts a second"
    )


REWARD_PATIENCE_SECONDS = 900.0  # of rollout workers, beyond reward.timeout_seconds


def _reward_queue_long(spec: RunSpec, facts: Facts) -> str | None:
    at_once = _completions_at_once(spec)
    if at_once is None:
        return None
    in_flight = spec.rollout.max_concurrent_groups * spec.rollout.group_size
    seconds = in_flight / at_once * spec.reward.timeout_seconds
    if seconds <= REWARD_PATIENCE_SECONDS:
        return None
    return (
        f"{in_flight} completions may wait for {at_once:g} places; where a request takes reward.timeout_seconds="
        f"{spec.reward.timeout_seconds:g}, the last waits {seconds:.0f} s, and workers give up after "
        f"{REWARD_PATIENCE_SECONDS:g} s more than one request"
    )


def _completions_at_once(spec: RunSpec) -> float | None:
    """Completions that the slowest service of the training's reward scores at once; None without one."""
    services = [
        one.options for one in remote_rewards(spec.model_dump(mode="json", include={"kind", "reward"}))
    ]
    return min(map(_batch, services), default=None)


def _batch(options: RemoteOptions) -> float:
    match options:
        case HttpOptions():
            return options.concurrency * options.batch_size
        case JudgeOptions():
            return options.concurrency / options.votes
    raise TypeError(type(options))


def _equal_votes(spec: RunSpec, facts: Facts) -> str | None:
    for one in remote_rewards(spec.model_dump(mode="json", include={"kind", "reward", "evaluation"})):
        if isinstance(one.options, JudgeOptions) and one.options.votes > 1 and one.options.temperature == 0:
            return f"votes={one.options.votes} with temperature=0: the votes are mostly equal, and each costs tokens"
    return None


def _context_exceeded(spec: RunSpec, facts: Facts) -> str | None:
    one = _longest(spec)
    if facts.context_tokens is None or one <= facts.context_tokens:
        return None
    return f"prompt and completion may take {one} tokens, the model's context holds {facts.context_tokens}"


def _sequence_over_microbatch(spec: RunSpec, facts: Facts) -> str | None:
    one, budget = _longest(spec), spec.trainer.microbatch_tokens
    return f"a trajectory may have {one} tokens, microbatch_tokens={budget}" if one > budget else None


def _many_epochs(spec: RunSpec, facts: Facts) -> str | None:
    if not facts.train_rows:
        return None
    epochs = spec.trainer.total_train_steps * spec.trainer.groups_per_step / facts.train_rows
    return f"every row is trained on {epochs:.0f} times ({facts.train_rows} rows)" if epochs > 20 else None


def _concurrency_starves(spec: RunSpec, facts: Facts) -> str | None:
    running, batch = spec.rollout.max_concurrent_groups, spec.trainer.groups_per_step
    return (
        f"max_concurrent_groups={running} is less than a batch of {batch} groups" if running < batch else None
    )


def _concurrency_over_gate(spec: RunSpec, facts: Facts) -> str | None:
    places = (spec.staleness.max + 1) * spec.trainer.groups_per_step
    running = spec.rollout.max_concurrent_groups
    if running <= places:
        return None
    return f"the admission gate never lets more than {places} groups run, max_concurrent_groups={running}"


def _requests_under_group(spec: RunSpec, facts: Facts) -> str | None:
    at_once, group = spec.rollout.engine_max_running_requests, spec.rollout.group_size
    return f"an engine decodes {at_once} requests at once, a group has {group}" if at_once < group else None


def _kv_oversubscribed(spec: RunSpec, facts: Facts) -> str | None:
    rollout = spec.rollout
    sent = rollout.max_concurrent_groups * rollout.group_size // rollout.engines
    running = min(rollout.engine_max_running_requests, sent)
    needed = running * rollout.max_new_tokens
    if needed <= 4 * rollout.engine_max_total_tokens:
        return None
    return (
        f"{running} requests of up to {rollout.max_new_tokens} tokens want {needed} tokens of cache, "
        f"engine_max_total_tokens={rollout.engine_max_total_tokens}"
    )


# --- intervals


def _staleness_over_steps(spec: RunSpec, facts: Facts) -> str | None:
    bound, steps = spec.staleness.max, spec.trainer.total_train_steps
    return f"max={bound}, and the run has {steps} train steps" if bound >= steps else None


def _evaluation_never(spec: RunSpec, facts: Facts) -> str | None:
    own, steps = spec.evaluation, spec.trainer.total_train_steps
    if own is None or own.every_steps is None or own.every_steps < steps:
        return None
    return f"every_steps={own.every_steps} comes not once before the end at {steps}"


def _evaluation_idle(spec: RunSpec, facts: Facts) -> str | None:
    own = spec.evaluation
    if own is None or own.at_start or own.at_end or own.every_steps is not None:
        return None
    return "at_start and at_end are off and every_steps is left out: nothing is ever scored"


def _evaluation_each_step(spec: RunSpec, facts: Facts) -> str | None:
    own = spec.evaluation
    if own is None or own.every_steps is None:
        return None
    scored, trained = own.prompts * max(1, own.samples), own.every_steps * _completions(spec)
    return (
        f"{scored} completions are scored for every {trained} that are trained on"
        if scored > trained
        else None
    )


def _checkpoint_only_at_end(spec: RunSpec, facts: Facts) -> str | None:
    every, steps = spec.checkpoint.every_steps, spec.trainer.total_train_steps
    return f"every_steps={every} of {steps}: what is lost is lost from the start" if every >= steps else None


def _warmup_whole(spec: RunSpec, facts: Facts) -> str | None:
    warmup, steps = spec.trainer.warmup_steps, spec.trainer.total_train_steps
    return f"warmup_steps={warmup} of {steps}: the full rate is never reached" if warmup >= steps else None


def _wall_short(spec: RunSpec, facts: Facts) -> str | None:
    most = spec.budget.max_wall_seconds
    return f"max_wall_seconds={most}: starting an engine takes its share" if most and most < 300 else None


# --- objective


def _decoupled_without_weights(spec: RunSpec, facts: Facts) -> str | None:
    algorithm = spec.algorithm
    if algorithm.objective != "decoupled_ppo" or algorithm.importance_weight.mode != "none":
        return None
    return f"importance_weight.mode=none keeps every importance weight, at max staleness {spec.staleness.max}"


def _token_weights_of_a_sequence_ratio(spec: RunSpec, facts: Facts) -> str | None:
    weight = spec.algorithm.importance_weight
    if spec.algorithm.objective != "gspo" or spec.algorithm.loss_function or weight.level != "token":
        return None
    if weight.mode == "second_moment":
        return None
    return "objective gspo clips one ratio per sequence, and importance_weight.level=token weighs each of its tokens apart"


def _stale_without_correction(spec: RunSpec, facts: Facts) -> str | None:
    algorithm, bound = spec.algorithm, spec.staleness.max
    if algorithm.objective != "ppo" or algorithm.loss_function or bound <= 1:
        return None
    if algorithm.proximal == "none":
        return f"objective ppo clips around the behavior policy, which is up to {bound} versions old"
    return f"objective ppo has no importance weight: it takes data up to {bound} versions old for fresh"


def _loss_constant_odd(spec: RunSpec, facts: Facts) -> str | None:
    constant, longest = spec.algorithm.loss_constant_tokens, spec.rollout.max_new_tokens
    if constant is None or spec.algorithm.loss_aggregation != "constant":
        return None
    if longest / 2 <= constant <= longest * 2:
        return None
    return f"loss_constant_tokens={constant}, completions have up to {longest}: the step size changes by the ratio"


def _loss_constant_unused(spec: RunSpec, facts: Facts) -> str | None:
    algorithm = spec.algorithm
    if algorithm.loss_constant_tokens is None or algorithm.loss_aggregation == "constant":
        return None
    return f"loss_constant_tokens={algorithm.loss_constant_tokens} has no say in {algorithm.loss_aggregation}"


def _no_baseline(spec: RunSpec, facts: Facts) -> str | None:
    advantage = spec.algorithm.advantage
    plain = advantage.estimator == "outcome" and advantage.mean == "none"
    return "advantage.mean=none with estimator outcome subtracts no baseline" if plain else None


def _clip_open(spec: RunSpec, facts: Facts) -> str | None:
    low = spec.algorithm.clip_low
    if spec.algorithm.objective == "cispo":
        return None  # its paper leaves the lower bound open
    return f"clip_low={low:g} bounds the ratio at {1 - low:g}, below which it never is" if low >= 1 else None


def _temperature_odd(spec: RunSpec, facts: Facts) -> str | None:
    temperature = spec.rollout.temperature
    return None if 0.6 <= temperature <= 1.3 else f"temperature={temperature:g}"


def _learning_rate_high(spec: RunSpec, facts: Facts) -> str | None:
    rate, highest = spec.trainer.learning_rate, 5e-5 if spec.model.lora is None else 1e-3
    if facts.parameters is None or facts.parameters < 100_000_000 or rate <= highest:
        return None
    return f"learning_rate={rate:g} for a model of {facts.parameters / 1e9:.2g} billion parameters"


def _lora_learning_rate_low(spec: RunSpec, facts: Facts) -> str | None:
    rate = spec.trainer.learning_rate
    if spec.model.lora is None or rate >= 5e-6:
        return None
    return f"learning_rate={rate:g} with model.lora: adapters start at 0 and need about ten times the rate of all weights"


def _lora_repeatable_sampling(spec: RunSpec, facts: Facts) -> str | None:
    if spec.model.lora is None or not spec.rollout.repeatable_sampling:
        return None
    return "repeatable_sampling with model.lora: SGLang's deterministic inference has not been tried with adapters"


# --- memory and slots


def _trainer_memory(spec: RunSpec, facts: Facts) -> str | None:
    if facts.parameters is None or not facts.slot_memory_bytes or not spec.trains:
        return None
    needed = memory.trainer_memory(spec, facts.parameters, facts.shape, device_bytes=facts.slot_memory_bytes)
    if needed.total <= facts.slot_memory_bytes:
        return None
    activations = (
        f"activations of {memory.row_tokens(spec)} tokens with activation_checkpointing="
        f"{spec.trainer.activation_checkpointing} {_gib(needed.activations)}, logits {_gib(needed.head)}"
        if needed.activations
        else "activations are not counted, for the model's shape is not known"
    )
    return (
        f"the first rank needs some {_gib(needed.total)} (weights, gradients and optimizer {_gib(needed.state)}, "
        f"gathered layers {_gib(needed.gathered)}, the weights of the probes {_gib(needed.probes)}, {activations}), and "
        f"a slot has {_gib(facts.slot_memory_bytes)}"
    )


def _engine_memory(spec: RunSpec, facts: Facts) -> str | None:
    if facts.parameters is None or facts.kv_bytes_per_token is None or not facts.slot_memory_bytes:
        return None
    needed = memory.engine_bytes(spec, facts.parameters, facts.kv_bytes_per_token)
    room = facts.slot_memory_bytes * (spec.rollout.engine_memory_fraction or 0.9)
    return (
        f"weights and cache take some {_gib(needed)}, an engine has {_gib(room)}" if needed > room else None
    )


def _float32_large(spec: RunSpec, facts: Facts) -> str | None:
    if facts.parameters is None or facts.parameters < 1_000_000_000 or spec.trainer.dtype != "float32":
        return None
    return f"dtype float32 for a model of {facts.parameters / 1e9:.2g} billion parameters"


def _fits_no_node(spec: RunSpec, facts: Facts) -> str | None:
    most = facts.largest_node_slots
    if most is None or spec.slots_needed <= most:
        return None
    return f"it needs {spec.slots_needed} slots on one node, the largest node of the pool has {most}"


def _no_such_device(spec: RunSpec, facts: Facts) -> str | None:
    device, pool = device_needed(spec, facts.parameters), spec.placement.pool
    if device is None or not facts.pool_devices or device in facts.pool_devices:
        return None
    return f"it needs {device} slots, pool {pool!r} has {' and '.join(sorted(facts.pool_devices))} slots only"


def _no_such_gpu(spec: RunSpec, facts: Facts) -> str | None:
    wanted, largest = spec.placement.min_gpu_memory_gib, facts.pool_gpu_memory_bytes
    if wanted is None or largest is None or wanted * 2**30 <= largest:
        return None
    return f"it needs GPUs of {wanted:g} GiB, the largest of pool {spec.placement.pool!r} has {_gib(largest)}"


def _over_team_limit(spec: RunSpec, facts: Facts) -> str | None:
    limit = facts.team_limit_slots
    if limit is None or spec.slots_needed <= limit:
        return None
    return f"it needs {spec.slots_needed} slots, the team's limit is {limit}"


# --- sft


def _validation_never(spec: RunSpec, facts: Facts) -> str | None:
    sft = spec.sft
    if sft.validation_split is None or sft.validate_from_step <= sft.steps:
        return None
    return (
        f"validate_from_step={sft.validate_from_step} is after the last of {sft.steps} steps, so stop_at_greedy_accuracy "
        "is never looked at"
    )


def _stops_below_required(spec: RunSpec, facts: Facts) -> str | None:
    stop, required = spec.sft.stop_at_greedy_accuracy, spec.sft.required_greedy_accuracy
    if stop is None or required is None or stop >= required:
        return None
    return f"it stops at accuracy {stop:g} and then fails for being below {required:g}"


# --- dpo


def _dpo_many_epochs(spec: RunSpec, facts: Facts) -> str | None:
    if not facts.train_rows:
        return None
    epochs = spec.dpo.steps * spec.dpo.batch_size / facts.train_rows
    return f"every pair is trained on {epochs:.0f} times ({facts.train_rows} pairs)" if epochs > 5 else None


def _dpo_learning_rate_high(spec: RunSpec, facts: Facts) -> str | None:
    rate, highest = spec.dpo.learning_rate, 5e-6 if spec.model.lora is None else 1e-4
    if facts.parameters is None or facts.parameters < 100_000_000 or rate <= highest:
        return None
    return f"learning_rate={rate:g} for a model of {facts.parameters / 1e9:.2g} billion parameters"


def _dpo_checkpoint_only_at_end(spec: RunSpec, facts: Facts) -> str | None:
    every, steps = spec.checkpoint.every_steps, spec.dpo.steps
    return f"every_steps={every} of {steps}: what is lost is lost from the start" if every >= steps else None


def _longest(spec: RunSpec) -> int:
    return spec.rollout.max_prompt_tokens + spec.rollout.max_new_tokens


def _completions(spec: RunSpec) -> int:
    return spec.trainer.groups_per_step * spec.rollout.group_size


def _gib(size: float) -> str:
    return f"{size / 2**30:.3g} GiB"


RULES: tuple[Rule, ...] = (
    Rule("kv_too_small", "error", "rl", "/rollout/engine_max_total_tokens", _kv_too_small, "Raise it, or lower max_prompt_tokens or max_new_tokens."),
    Rule("policy_never_learns", "error", "rl", "/algorithm/critic/warmup_steps", _policy_never_learns, "Lower warmup_steps, or raise total_train_steps."),
    Rule("reward_scale_zero", "error", "rl", "/reward/scale", _reward_scale_zero, "Give a scale other than 0."),
    Rule("stops_below_required", "error", "sft", "/sft/stop_at_greedy_accuracy", _stops_below_required, "Stop at the required accuracy or above it."),
    Rule("reward_slower_than_rollouts", "warning", "rl", "/reward/options", _reward_slower_than_rollouts, "Raise concurrency or batch_size as far as the service allows, or lower votes; the rollouts otherwise wait for scores."),
    Rule("reward_queue_long", "warning", "rl", "/reward/options", _reward_queue_long, "Raise concurrency or batch_size, lower reward.timeout_seconds, or lower rollout.max_concurrent_groups."),
    Rule("equal_votes", "warning", "any", "/reward/options", _equal_votes, "Give a temperature, or votes: 1."),
    Rule("context_exceeded", "warning", "rl", "/rollout/max_new_tokens", _context_exceeded, "Lower max_new_tokens or max_prompt_tokens; what goes beyond the context is cut."),
    Rule("sequence_over_microbatch", "warning", "rl", "/trainer/microbatch_tokens", _sequence_over_microbatch, "Raise it to the longest trajectory: such a one is alone in its microbatch and may not fit."),
    Rule("many_epochs", "warning", "rl", "/trainer/total_train_steps", _many_epochs, "Fewer steps or more rows; watch the evaluation for overfitting."),
    Rule("concurrency_starves", "warning", "rl", "/rollout/max_concurrent_groups", _concurrency_starves, "Raise it to groups_per_step at least, or the trainer waits for the second half of each batch."),
    Rule("concurrency_over_gate", "warning", "rl", "/rollout/max_concurrent_groups", _concurrency_over_gate, "Harmless, but it says more than is done: raise staleness.max, or lower it to that."),
    Rule("requests_under_group", "warning", "rl", "/rollout/engine_max_running_requests", _requests_under_group, "Raise it to group_size at least, so that a group's members share one prefill."),
    Rule("kv_oversubscribed", "warning", "rl", "/rollout/engine_max_total_tokens", _kv_oversubscribed, "Raise the cache or lower engine_max_running_requests: the engine will retract and prefill again."),
    Rule("staleness_over_steps", "warning", "rl", "/staleness/max", _staleness_over_steps, "Everything may then be sampled from the initial weights; lower it."),
    Rule("evaluation_never", "warning", "rl", "/evaluation/every_steps", _evaluation_never, "Lower it, or leave it out and rely on at_end."),
    Rule("evaluation_idle", "warning", "any", "/evaluation", _evaluation_idle, "Leave the section out, or turn one of them on."),
    Rule("evaluation_heavy", "warning", "rl", "/evaluation/every_steps", _evaluation_each_step, "Raise every_steps, or score fewer prompts: evaluation takes an engine from training."),
    Rule("checkpoint_only_at_end", "warning", "rl", "/checkpoint/every_steps", _checkpoint_only_at_end, "Lower it to what you can bear to lose."),
    Rule("warmup_whole", "warning", "rl", "/trainer/warmup_steps", _warmup_whole, "Lower it."),
    Rule("wall_short", "warning", "any", "/budget/max_wall_seconds", _wall_short, "Give at least some minutes."),
    Rule("decoupled_without_weights", "warning", "rl", "/algorithm/importance_weight/mode", _decoupled_without_weights, "Take mask or truncate: one token with a huge weight can undo a step."),
    Rule("stale_without_correction", "warning", "rl", "/algorithm/objective", _stale_without_correction, "Take decoupled_ppo, or lower staleness.max to 1."),
    Rule("token_weights_of_a_sequence_ratio", "warning", "rl", "/algorithm/importance_weight/level", _token_weights_of_a_sequence_ratio, "Take level: sequence_mean, which is to w what the sequence's ratio is to the ratio of a token."),
    Rule("loss_constant_odd", "warning", "rl", "/algorithm/loss_constant_tokens", _loss_constant_odd, "Leave it out: it then is rollout.max_new_tokens."),
    Rule("loss_constant_unused", "warning", "rl", "/algorithm/loss_constant_tokens", _loss_constant_unused, "Leave it out, or take loss_aggregation: constant."),
    Rule("no_baseline", "warning", "rl", "/algorithm/advantage/mean", _no_baseline, "Take mean: group or batch; without a baseline the variance is high."),
    Rule("clip_open", "warning", "rl", "/algorithm/clip_low", _clip_open, "Take a value below 1, such as 0.2."),
    Rule("temperature_odd", "warning", "rl", "/rollout/temperature", _temperature_odd, "Exploration works best near 1: low ones sample the same answer again, high ones noise."),
    Rule("learning_rate_high", "warning", "rl", "/trainer/learning_rate", _learning_rate_high, "Published recipes for models of this size use 1e-6 to 2e-5."),
    Rule("lora_learning_rate_low", "warning", "rl", "/trainer/learning_rate", _lora_learning_rate_low, "Take 1e-5 to 1e-4."),
    Rule("lora_repeatable_sampling", "warning", "rl", "/rollout/repeatable_sampling", _lora_repeatable_sampling, "Do not rely on equal completions, or train all weights."),
    Rule("trainer_memory", "warning", "any", "/trainer/num_ranks", _trainer_memory, "More ranks, activation_checkpointing: full, fewer microbatch_tokens, offload_optimizer, model.lora, or a smaller model."),
    Rule("engine_memory", "warning", "rl", "/rollout/engine_max_total_tokens", _engine_memory, "Lower it, or take a smaller model."),
    Rule("float32_large", "warning", "any", "/trainer/dtype", _float32_large, "Take bfloat16: master weights stay float32."),
    Rule("fits_no_node", "warning", "any", "/rollout/engines", _fits_no_node, "Fewer engines or ranks, or add a larger node; until then it waits."),
    Rule("no_such_device", "warning", "any", "/placement/device", _no_such_device, "Take another pool, or add a node that has such slots; until then it waits."),
    Rule("no_such_gpu", "warning", "any", "/placement/min_gpu_memory_gib", _no_such_gpu, "Lower it, take another pool, or add a node with larger GPUs; until then it waits."),
    Rule("over_team_limit", "warning", "any", "/rollout/engines", _over_team_limit, "Fewer engines or ranks, or ask for a higher limit; until then it waits."),
    Rule("dpo_many_epochs", "warning", "dpo", "/dpo/steps", _dpo_many_epochs, "Fewer steps or more pairs; watch dpo/validation_loss for overfitting."),
    Rule("dpo_learning_rate_high", "warning", "dpo", "/dpo/learning_rate", _dpo_learning_rate_high, "Published recipes for models of this size use 1e-7 to 1e-6, with model.lora ten times as much."),
    Rule("dpo_checkpoint_only_at_end", "warning", "dpo", "/checkpoint/every_steps", _dpo_checkpoint_only_at_end, "Lower it to what you can bear to lose."),
    Rule("validation_never", "warning", "sft", "/sft/validate_from_step", _validation_never, "Lower it, or turn the validation off with validation_split: null."),
)  # fmt: skip
