"""What one may look for by another tool's name, and why there is no such metric here."""

_TABLE = """
reward by component, reward by environment | a run has one reward function; the parts of a score are kept with each trajectory
advantage/abs_mean | advantage/mean and advantage/std say as much
rollout/repetition | a reward of your own measures it where it matters
stop reasons other than the length limit | what is neither cut off nor failed has stopped by itself: response_length/truncated_frac, ledger/failed_groups
loss/kl, loss/entropy_bonus | policy/reference_kl and policy/entropy, without their coefficients
policy/kl_k3 from the proximal to the current policy | policy/approx_kl is its k1 estimate, policy/ratio_min and policy/ratio_max its extremes
optim/update_rms | optim/learning_rate and optim/grad_norm; AdamW's update is about the learning rate a weight
mismatch/k3_kl, mismatch/prob_pearson, mismatch/ppl_ratio, mismatch/p99 | of the same differences as mismatch/logprob_abs_mean and _max, on which the limit is
importance weights: least, p99, by sequence | importance_ratio/mean, importance_ratio/std and importance_ratio/max are by token; importance_ratio/masked_frac is of the level that the algorithm uses
importance weights: veto | there is no veto: a weight over its limit is masked or capped, and counted
importance weights: chi-squared | follows from importance_ratio/mean and importance_ratio/effective_sample_frac: mean^2 / effective_sample_frac - 1
staleness/p50 | the histogram staleness/consumed_trajectories has all quantiles
buffer/capacity, buffer/age, admission blocked | the gate is the capacity: gate/admissible_groups; how old a group is counts in versions: staleness/mean
perf/tokens_per_s_per_gpu, perf/gpu_hours, perf/cost | usage by slot is counted by the control plane, for all runs: `oolong pool usage`
perf/mfu | the peak of a device is not known to a run; the tests for a GPU print it for known devices
time/h2d, time/optim | part of time/train_seconds: transfers and kernels run beside the host's clock
idle by cause | of the trainer time/wait_batch_seconds and time/straggler_wait_seconds, of an engine weight_sync/paused_seconds and eval/seconds
sync/bytes, sync/gbps, sync/density | the whole weights are published each time: size over time/write_seconds and weight_sync/load_seconds
pack/padding, pack/dummy | rows have no padding; packing/utilization counts what a budget leaves unused
engine/ttft, engine/tpot | nobody waits for one token of a rollout; perf/generated_tokens_per_second is the pace of all
environment latency | what the environment does is part of the rollout; failures are in ledger/failed_groups
memory reserved, shared memory | memory/accelerator_peak_bytes is what was allocated; weights travel by files
health/last_progress_age | alerts watch progress and heartbeats; they are no series
"""

LEFT_OUT: dict[str, str] = dict(line.split(" | ", 1) for line in _TABLE.strip().splitlines())
