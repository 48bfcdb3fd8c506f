"""The metric catalog is whole: it has what is written and nothing else, and the dashboard asks for no other."""

import ast
import re
from pathlib import Path

from oolong.contracts.metrics import HISTOGRAMS, METRICS
from tests.tools.metrics_left_out import LEFT_OUT

ROOT = Path(__file__).resolve().parents[3]
CATALOG = METRICS.keys() | HISTOGRAMS.keys()
NAMESPACES = {name.split("/")[0] for name in CATALOG}
NAME = re.compile(rf"(?:{'|'.join(sorted(NAMESPACES))})/[a-z0-9_]+")
EMITTERS = [
    path
    for folder in ("gpu_agents/rollout", "gpu_agents/rewards", "trainers")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def written_names() -> dict[str, str]:
    """Metric name -> where it is a key of a dict display, is assigned to, or heads a row of a table of tuples."""
    found: dict[str, str] = {}
    for path in EMITTERS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                names = node.keys
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                names = [node.slice]
            elif isinstance(node, ast.Tuple) and node.elts:
                names = node.elts[:1]
            else:
                continue
            for name in names:
                if (
                    isinstance(name, ast.Constant)
                    and isinstance(name.value, str)
                    and NAME.fullmatch(name.value)
                ):
                    found[name.value] = f"{path.relative_to(ROOT)}:{name.lineno}"
    return found


def test_every_metric_that_is_written_is_in_the_catalog() -> None:
    unknown = {name: place for name, place in written_names().items() if name not in CATALOG}
    assert not unknown, f"add a line to oolong/contracts/metrics.py: {unknown}"


def test_every_metric_of_the_catalog_is_written_by_somebody() -> None:
    assert not sorted(CATALOG - written_names().keys()), "nobody writes these: take them out, or write them"


def test_no_name_is_put_together_where_this_test_cannot_read_it() -> None:
    """A name made by an f-string would be neither found nor missed above."""
    made = []
    for path in EMITTERS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
                if NAME.fullmatch(text):
                    made.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not made, f"write these metric names out: {made}"


def test_the_dashboard_asks_only_for_metrics_of_the_catalog() -> None:
    asked = {
        name: str(path.relative_to(ROOT))
        for path in sorted((ROOT / "webui" / "src").rglob("*.ts*"))
        if ".test." not in path.name and path.name != "schema.d.ts"
        for name in re.findall(rf'"({NAME.pattern})"', path.read_text())
    }
    assert len(asked) > 20, "the pattern finds no names any more"
    assert not {name: path for name, path in asked.items() if name not in CATALOG}


def test_a_metric_that_ends_in_a_unit_has_that_unit() -> None:
    for metric in [*METRICS.values(), *HISTOGRAMS.values()]:
        assert "/" in metric.name and len(metric.help) > 10, metric
        for ending, unit in (("_seconds", "seconds"), ("_frac", "fraction"), ("_bytes", "bytes")):
            if metric.name.endswith(ending):
                assert metric.unit == unit, metric


# What the trainers of this field report, and under which name it is here. Everything else of theirs is in LEFT_OUT.
OF_THE_FIELD = """
reward/mean,std,min,max = reward/mean reward/std reward/min reward/max
group/reward_std_mean,solved_all,solved_none,zero_variance = group/reward_std_mean group/all_correct_frac group/none_correct_frac group/zero_variance_frac
advantage/mean,std = advantage/mean advantage/std
response_length/mean,p50,p95,p99,max = response_length/mean response_length/p50 response_length/p95 response_length/p99 response_length/max
length/cv,truncated,consumed_minus_generated = response_length/cv response_length/truncated_frac response_length/selection_bias
rollout/error_frac,turns/mean = ledger/failed_groups workflow/turns_mean
loss/policy,value = loss/policy value/loss
policy/entropy,clip_frac_low,clip_frac_high,dual_clip_frac = policy/entropy policy/clip_low_frac policy/clip_high_frac policy/dual_clip_frac
policy/masked_frac,approx_kl,kl_ref = importance_ratio/masked_frac policy/approx_kl policy/reference_kl
optim/grad_norm,clipped_frac,lr,skipped_steps = optim/grad_norm optim/grad_norm_clipped_frac optim/learning_rate optim/skipped_steps
mismatch/logp_abs_diff_mean,max = mismatch/logprob_abs_mean mismatch/logprob_abs_max mismatch/on_policy_abs_mean mismatch/tokens
is/mean,std,max,ess_frac,truncated_frac = importance_ratio/mean importance_ratio/std importance_ratio/max importance_ratio/effective_sample_frac importance_ratio/masked_frac importance_ratio/abs_log_mean
staleness/mean,max,p95,hist = staleness/mean staleness/max staleness/p95 staleness/consumed_trajectories staleness/consumed_tokens
staleness/version_span,token_weighted,interrupted = staleness/version_span_mean staleness/version_span_max staleness/token_mean staleness/interrupted_frac
staleness/dropped,violations = staleness/dropped_token_frac staleness/dropped_tokens staleness/exceeded_frac
buffer/depth,rollout/in_flight,queued,paused = buffer/groups gate/running_groups engine/waiting_requests weight_sync/paused_seconds
perf/tokens_per_s,gen_tokens_per_s,samples_per_s = perf/trained_tokens_per_second perf/generated_tokens_per_second perf/trajectories_per_second
time/step,wait_batch,pack,prox_logp,fwd_bwd = time/step_seconds time/wait_batch_seconds time/prepare_seconds time/proximal_seconds time/train_seconds
time/weight_sync,ckpt,eval,reward = time/publish_seconds time/checkpoint_seconds eval/seconds reward/latency_p50_seconds
idle/trainer_frac,rollout_frac = idle/trainer_frac idle/rollout_frac
sync/total,gather,transfer,pause,version_skew = time/publish_seconds time/gather_seconds time/write_seconds weight_sync/load_seconds weight_sync/paused_seconds weight_sync/delay_seconds
pack/bin_util,flops_imbalance,microbatches = packing/utilization packing/flops_imbalance packing/microbatches
engine/running,waiting,kv_usage,prefix_hit,preemptions,restarts,version = engine/running_requests engine/waiting_requests engine/kv_cache_frac engine/prefix_cache_hit_frac engine/retractions engine/restarts engine/version
reward/latency_p95,timeouts = reward/latency_p95_seconds sandbox/timeouts
mem/gpu_peak_alloc,host_rss = memory/accelerator_peak_bytes memory/trainer_peak_bytes
ledger/generated,consumed,discarded = ledger/generated_tokens ledger/trained_tokens ledger/dropped_tokens ledger/lost_tokens
eval/avg@k,pass@k,len,trunc = eval/sampled eval/pass_at_k eval/mean_tokens eval/truncated_frac
"""  # noqa: E501


def test_what_the_field_reports_is_here_or_left_out_with_its_reason() -> None:
    for line in OF_THE_FIELD.strip().splitlines():
        theirs, _, ours = line.partition(" = ")
        assert not set(ours.split()) - CATALOG, theirs
    assert len(LEFT_OUT) > 20 and all(len(reason) > 20 for reason in LEFT_OUT.values())
    named = {name for reason in LEFT_OUT.values() for name in NAME.findall(reason)}
    assert len(named) > 20 and not named - CATALOG, "the reason points to a metric that is not there"
