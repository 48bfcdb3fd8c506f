"""The metric catalog: name, unit and help text in one table that emitters, API, docs and dashboard share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    name: str
    unit: str  # "", tokens, seconds, fraction, versions, groups, tokens/s, bytes
    help: str


_TABLE = """
reward/mean | | mean reward of the rollouts of the batch trained on; a session counts once, however many calls it made
reward/std | | standard deviation of those rewards
reward/min | | smallest reward of the batch
reward/max | | largest reward of the batch
reward/score_mean | | mean of the reward function's own value, before scale and bias
reward/overlong_penalty_mean | | mean overlong penalty of the batch, 0 or negative; the other reward metrics are before it
group/reward_std_mean | | mean over groups of the standard deviation of a group's rewards: how much signal there is
group/zero_variance_frac | fraction | groups of the batch whose rewards are all equal: no gradient under group normalization
group/all_correct_frac | fraction | groups whose every rollout has the best reward seen in the batch
group/filtered_frac | fraction | groups finished since the step before that rollout.filter dropped
group/none_correct_frac | fraction | groups whose every rollout has the worst reward seen in the batch
advantage/mean | | mean advantage over loss tokens
advantage/std | | its standard deviation
response_length/mean | tokens | mean completion length of the batch, in tokens that the policy sampled
response_length/max | tokens | longest completion of the batch, likewise
response_length/p50 | tokens | median completion length of the batch
response_length/p95 | tokens | 95th percentile of those lengths
response_length/p99 | tokens | 99th percentile of those lengths
response_length/cv | | standard deviation of those lengths over their mean: how long the tail is
response_length/truncated_frac | fraction | completions that ended at the length limit
workflow/turns_mean | | mean number of turns of the policy in a trajectory
workflow/turns_max | | largest such number of the batch
workflow/tool_calls_mean | | mean number of tool calls in a trajectory
workflow/environment_tokens_frac | fraction | tokens of the batch's trajectories that the environment wrote: they are read and not trained on
response_length/overlong_frac | fraction | rollouts whose longest turn has an overlong penalty
response_length/masked_frac | fraction | completions left out of the loss because they ended at the length limit
response_length/trained_mean | tokens | mean sampled length of the trajectories taken for training so far
response_length/dropped_mean | tokens | mean sampled length of the finished trajectories dropped as stale so far
response_length/selection_bias | | mean length of what is trained on over that of all that was finished; below 1, drops prefer short completions
loss/policy | | the objective's loss, token mean
loss/total | | the policy's whole loss with KL and entropy terms, under the spec's normalization, mean over minibatches
policy/entropy | nats | mean entropy of the current policy on loss tokens
policy/clip_low_frac | fraction | loss tokens clipped from below
policy/clip_high_frac | fraction | loss tokens clipped from above
policy/dual_clip_frac | fraction | loss tokens of negative advantage whose ratio was over dual_clip
policy/ratio_mean | | mean of the ratio that the objective clips, over the step's updates
policy/ratio_min | | smallest such ratio
policy/ratio_max | | largest such ratio
policy/reference_kl | nats | k3 estimate of the KL from the policy before the step to the reference policy
policy/approx_kl | nats | k1 estimate of the KL from the proximal to the current policy on the tokens with an advantage of the step's last minibatch, before its update
importance_ratio/mean | | mean of w, proximal over behavior probability
importance_ratio/std | | standard deviation of w
importance_ratio/effective_sample_frac | fraction | effective sample size of the batch's tokens under w, over their number: (sum w)^2 / (n sum w^2)
importance_ratio/max | | largest w of the batch
importance_ratio/abs_log_mean | nats | mean |log w|: how far staleness moved the policy
importance_ratio/masked_frac | fraction | loss tokens whose w was masked or capped: above importance_weight.threshold, or below lower_threshold
value/loss | | the critic's loss, token mean
value/clip_frac | fraction | loss tokens whose value has left its range
value/mean | | mean value before the step
value/return_mean | | mean return that the values are fitted to
value/explained_variance | fraction | variance of the returns that the values before the step explain; 1 is all, 0 none
mismatch/logprob_abs_mean | nats | engine against trainer at the same weights: mean |logprob difference| on probes
mismatch/logprob_abs_max | nats | largest such difference
mismatch/tokens | tokens | number of tokens compared
mismatch/on_policy_abs_mean | nats | the same on training tokens of lag 0
mismatch/on_policy_abs_max | nats | largest such difference on training tokens of lag 0
mismatch/on_policy_tokens | tokens | number of training tokens of lag 0
optim/grad_norm | | gradient norm before clipping, mean over minibatches
optim/grad_norm_clipped_frac | fraction | minibatches of the step whose gradient was clipped
optim/critic_grad_norm | | the critic's gradient norm before clipping, mean over minibatches
optim/critic_learning_rate | | the critic's learning rate of the step
optim/learning_rate | | learning rate of the step
optim/skipped_steps | steps | steps skipped so far for a non-finite loss or gradient
staleness/mean | versions | mean staleness of the batch's trajectories at training
staleness/max | versions | largest staleness of the batch
staleness/p95 | versions | 95th percentile
staleness/token_mean | versions | mean lag over tokens
staleness/exceeded_frac | fraction | trajectories older than the max staleness at the take of their batch
staleness/exceeded_groups | groups | groups trained on so far of which a trajectory was over that max staleness
staleness/bound | versions | that max staleness: the largest that was in force since a group of the batch was drawn
staleness/version_span_mean | versions | mean number of distinct versions in a trajectory
staleness/version_span_max | versions | largest such number
staleness/interrupted_frac | fraction | trajectories that were interrupted at least once
staleness/dropped_token_frac | fraction | tokens dropped since the step before, for any reason, over those dropped or trained on
policy/version | versions | policy version after the step
perf/trained_tokens | tokens | loss tokens of the batch
perf/trained_tokens_per_second | tokens/s | those over the step's wall time
perf/trajectories_per_second | | trajectories trained on over the step's wall time
perf/generated_tokens_per_second | tokens/s | completion tokens per second, all engines
time/step_seconds | seconds | wall time of the train step
time/wait_batch_seconds | seconds | the trainer waited for a batch
time/straggler_wait_seconds | seconds | part of that wait spent on stragglers
time/prepare_seconds | seconds | packing the batch, dealing it to the ranks and writing the step's metrics
time/proximal_seconds | seconds | forward pass for the proximal policy
time/reference_seconds | seconds | forward pass of the reference policy
time/values_seconds | seconds | forward pass of the critic
time/train_seconds | seconds | forward, backward and optimizer
time/publish_seconds | seconds | gather, write and announce the weights (trainer blocked)
time/gather_seconds | seconds | gather of the weights to publish
time/write_seconds | seconds | write of the weights
time/announce_seconds | seconds | the controller's answer to the announcement of a version
time/checkpoint_seconds | seconds | checkpoint (trainer blocked)
idle/trainer_frac | fraction | share of the step in which the trainer waited for a batch
idle/rollout_frac | fraction | share of time in which an engine had no running request
weight_sync/paused_seconds | seconds | an engine was paused for a weight load
weight_sync/load_seconds | seconds | the engine's load of the weights
weight_sync/delay_seconds | seconds | announcement to acknowledgement
weight_sync/version_bytes | bytes | files of the published version: a model, or the adapter of a LoRA run
weight_sync/engine_paused_frac | fraction | share of time that engines were paused for loads
packing/tokens | tokens | tokens of the step's microbatches, prompts included
packing/microbatches | | microbatches of the step
packing/utilization | fraction | tokens over the token budget of the microbatches used
packing/flops_imbalance | | work that the ranks wait for, microbatch by microbatch, over the mean work of a rank; 1 is perfect
ledger/sampled_groups | groups | groups started so far; trained, dropped and those in flight add up to it
ledger/trained_groups | groups | groups trained on so far
ledger/dropped_groups | groups | groups dropped so far, for whatever reason
ledger/failed_groups | groups | of them, those whose workflow or reward failed
ledger/generated_tokens | tokens | completion tokens made so far; trained, dropped, lost and those in flight add up to it
ledger/trained_tokens | tokens | completion tokens trained on so far
ledger/dropped_tokens | tokens | completion tokens of dropped groups so far
ledger/lost_tokens | tokens | completion tokens lost to recoveries so far
buffer/groups | groups | finished groups that wait for a train step
gate/running_groups | groups | groups being generated
gate/live_engines | | engines that take part in the run
gate/admissible_groups | groups | free places of the admission gate
gate/stalled_seconds | seconds | no group is running, waiting or admissible, and too few are finished for a batch
buffer/batch_unclaimed_seconds | seconds | enough groups for a batch are finished, and the trainer has none in training
weight_sync/unloaded_seconds | seconds | no engine has loaded the newest published weights
memory/trainer_peak_bytes | bytes | most main memory that rank 0 of the trainer has held so far
memory/accelerator_peak_bytes | bytes | most accelerator memory that rank 0 has allocated so far
engine/version | versions | version that the engine has loaded
engine/running_requests | requests | requests in the engine
engine/waiting_requests | requests | requests that the engine took in and does not decode yet
engine/kv_cache_frac | fraction | of the engine's KV cache, in use by running requests
engine/window | requests | completions that the worker keeps in the engine at most, by what the engine says of itself
engine/retractions | | requests taken off so far because the KV cache was full, weight loads not counted
engine/prefix_cache_hit_frac | fraction | input tokens whose keys and values the engine had already
engine/restarts | | restarts of the engine so far
reward/latency_p50_seconds | seconds | median time from a completion's arrival at the reward service to its score, waiting included
reward/latency_p95_seconds | seconds | its 95th percentile
reward/scored | | completions scored so far
reward/verifier_errors | | completions without a score so far because the reward function failed; never a reward of 0
reward/sandbox_errors | | completions or tool calls without a result so far because the sandbox failed
reward/forgeable_frac | fraction | scores that the completion's own code could have forged
reward/remote_requests | | requests to the service of a remote reward so far, those sent again included
reward/remote_retries | | of them, those sent again after a lost connection, a timeout, 408, 429 or 5xx
reward/remote_failures | | requests given up so far; their completions have no score
reward/remote_latency_p50_seconds | seconds | median time of an answered request to that service, without the wait for a free one
reward/remote_latency_p95_seconds | seconds | its 95th percentile
reward/judge_input_tokens | tokens | prompt tokens that the judge's endpoint has counted so far
reward/judge_output_tokens | tokens | completion tokens that it has counted so far
reward/judge_cache_hits | | completions so far whose judgement was known: the same prompt, answer and response
reward/judge_unparsable | | replies of the judge so far in which no score was found
sandbox/runs | | sandboxes run so far
sandbox/tests | | programs and tests run in them so far
sandbox/timeouts | | of those, stopped at their time limit
session/open | sessions | agent sessions that are open at the worker
session/opened | sessions | agent sessions opened so far
session/completions | | completions of agent sessions so far
session/branches | | completions so far that went on from an earlier turn, or whose history the agent had rewritten
session/timeouts | groups | groups dropped so far because an agent left them alone
session/refused_staleness | | requests for a session that the admission gate refused so far: too far ahead of the trainer
session/refused_concurrency | | the same: max_concurrent_groups are running
session/refused_other | | the same for another reason, such as a weight load or an evaluation
tunnel/requests | | requests to the worker's sessions so far that came through the relay
tunnel/bytes | bytes | bodies of those requests and of their answers
sft/loss | nats | warm start: token mean loss
sft/greedy_accuracy | fraction | warm start: validation rows whose every target token is the model's first choice
sft/learning_rate | | warm start: learning rate
dpo/loss | nats | DPO: mean loss of the batch's pairs, log 2 = 0.693 before the first step
dpo/accuracy | fraction | DPO: pairs of the batch whose chosen completion has the larger reward; equal rewards count half
dpo/margin | | DPO: mean reward of the chosen minus the rejected completion
dpo/chosen_reward | | DPO: mean reward of the chosen completions, beta times the log-probability ratio to the reference
dpo/rejected_reward | | DPO: mean reward of the rejected completions
dpo/chosen_logprob | nats | DPO: mean log-probability of a chosen completion under the policy, summed over its tokens
dpo/rejected_logprob | nats | DPO: mean log-probability of a rejected completion under the policy, summed over its tokens
dpo/validation_loss | nats | DPO: mean loss on the validation pairs
dpo/validation_accuracy | fraction | DPO: dpo/accuracy on the validation pairs
dpo/validation_margin | | DPO: dpo/margin on the validation pairs
eval/greedy | fraction | mean score of the greedy completions at a pinned version
eval/greedy_low | fraction | lower end of its 95 % interval: Wilson's for scores of 0 and 1, else bootstrap over prompts
eval/greedy_high | fraction | upper end of that interval
eval/sampled | fraction | avg@k: mean score of the k sampled completions of each prompt at a pinned version
eval/sampled_low | fraction | lower end of its 95 % interval, bootstrap over prompts
eval/sampled_high | fraction | upper end of that interval
eval/pass_at_k | fraction | prompts that one of the k samples solves (unbiased estimator), k = evaluation.samples
eval/pass_at_k_low | fraction | lower end of its 95 % interval
eval/pass_at_k_high | fraction | upper end of that interval
eval/accuracy | fraction | right completions (score of evaluation.success_score or more): of the greedy ones, without them of the sampled ones
eval/accuracy_low | fraction | lower end of its 95 % interval: Wilson's for one completion a prompt, else bootstrap over prompts
eval/accuracy_high | fraction | upper end of that interval
eval/mean_tokens | tokens | mean length of the evaluation's completions
eval/truncated_frac | fraction | of them, those that ended at the length limit
eval/seconds | seconds | an engine was leased for the evaluation
evaluator/busy_seconds | seconds | since its last point, an evaluator's engine had requests; it is none of the run's engines
"""


_HISTOGRAMS = """
staleness/consumed_trajectories | versions | trajectories of the step's batch by staleness
staleness/consumed_tokens | versions | tokens of the step's batch by the lag of the version that sampled them
response_length/tokens | tokens | trajectories of the step's batch by completion length; a bucket is named by its least length: 1, 2, 3, 4, 6, 8, 12, 16, 24 ...
staleness/dropped_tokens | versions | tokens dropped since the step before, for any reason, by their lag when they were dropped
"""


def _parse(table: str) -> dict[str, Metric]:
    rows = (tuple(part.strip() for part in line.split("|", 2)) for line in table.strip().splitlines())
    return {name: Metric(name, unit, help_text) for name, unit, help_text in rows}


METRICS: dict[str, Metric] = _parse(_TABLE)
# One metric for each of something that a run names itself: what stands behind the last slash is the name.
REWARD_BY_SOURCE = "reward/by_source/"
GROUPS_BY_SOURCE = "group/by_source/"
ACCURACY_BY_SOURCE = "eval/by_source/"
FAMILIES: dict[str, Metric] = {
    family.name: family
    for family in (
        Metric(
            REWARD_BY_SOURCE, "", "mean reward of the batch's rollouts on rows of this source of the dataset"
        ),
        Metric(GROUPS_BY_SOURCE, "groups", "groups of the batch on rows of this source of the dataset"),
        Metric(ACCURACY_BY_SOURCE, "fraction", "eval/accuracy on the rows of this source"),
    )
}
HISTOGRAMS: dict[str, Metric] = _parse(_HISTOGRAMS)  # unit: of the buckets


def find_metric(name: str) -> Metric | None:
    """The metric with this name, also one of a family; None if no process measures it."""
    if name in METRICS:
        return METRICS[name]
    for prefix, family in FAMILIES.items():
        if name.startswith(prefix) and name != prefix:
            return Metric(name, family.unit, family.help)
    return None
