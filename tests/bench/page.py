"""docs/benchmarks/README.md, made from results.json alone: no figure of the page is typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from tests.bench.measures import MEASURES, Measure
from tests.bench.record import RESULTS, Entry, read_results

PAGE = RESULTS.with_name("README.md")
KINDS = {
    "emulated": "real runtime, **emulated devices**",
    "model": "planner and a **cost model**",
    "real": "this machine",
}
HEAD = """# Benchmarks

Made by `python3 manage.py bench --page` from `results.json`; `make bench` measures everything again, `python3 manage.py
bench --only KEY` one measure. How to read it, and what was not measured: [reading.md](reading.md).
"""


def write_page() -> None:
    PAGE.write_text(page(read_results()))


def page(results: dict[str, Entry]) -> str:
    parts = [HEAD, _summary(results), *_misses(results)]
    sections = (
        ("async_over_sync_eta4", _sensitivity),
        ("async_over_sync_by_eta", _by_eta),
        ("trainer_idle_fraction", _by_split),
        ("async_over_sync_eta4", _devices),
        ("real_cpu_async_over_sync", _real),
        ("decoupled_eta8_over_eta0", _ablation),
        ("dynamic_over_fixed_microbatches", _microbatches),
        ("scheduler_simulation", _simulation),
    )
    parts += [section(results[key]) for key, section in sections if key in results]
    return "\n".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        + "\n"
    )


def figure(value: float) -> str:
    """Three significant places, and no exponent where a person would not write one."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _summary(results: dict[str, Entry]) -> str:
    rows = []
    for key, measure in MEASURES.items():
        one = results.get(key)
        if one is None:
            rows.append([f"`{key}`", "not measured yet", "", measure.goal, "", measure.meaning, ""])
            continue
        met = "" if one["met"] is None else "yes" if one["met"] else _missed(one["value"], measure)
        meaning = measure.meaning + (f"; against {one['baseline']}" if one["baseline"] else "")
        rows.append(
            [f"`{key}`", f"**{figure(one['value'])}**", one["unit"], measure.goal, met, meaning,
             f"{KINDS[one['kind']]}, {one['date']}"]
        )  # fmt: skip
    return table(["measure", "value", "unit", "goal", "met", "what", "measured on"], rows)


def _missed(value: float, measure: Measure) -> str:
    goal = measure.at_least if measure.at_least is not None else measure.at_most
    assert goal is not None
    return f"**no**, by {abs(value - goal):.3g}"


def _misses(results: dict[str, Entry]) -> list[str]:
    missed = [MEASURES[key] for key, one in results.items() if one["met"] is False]
    lines = [f"- `{measure.key}`: {measure.if_missed}\n" for measure in missed if measure.if_missed]
    return ["## Goals that are missed, and why\n\n" + "".join(lines)] if lines else []


def _sensitivity(one: Entry) -> str:
    settings = one["settings"]
    published, ours = settings["published_seconds_per_step"], settings["seconds_per_step"]
    rows = [
        [row["change"], figure(row["async_over_sync"]), figure(row["seconds_per_step_sync"]),
         figure(row["seconds_per_step_async"]), share(row["trainer_idle"]), share(row["rollout_idle"])]
        for row in settings["sensitivity"]
    ]  # fmt: skip
    by_seed = ", ".join(figure(value) for value in settings["by_seed"])
    return (
        "## Asynchronous over synchronous: what it depends on\n\n"
        f"By seed: {by_seed}. A synchronous step takes {figure(ours['sync'])} emulated seconds (the paper: "
        f"{figure(published['sync'])}; the cost of a decode step was set by this one figure), an asynchronous one "
        f"{figure(ours['async'])} (the paper: {figure(published['async'])}; not fitted). Each row below changes one "
        "thing, in both arms.\n\n"
        + table(
            ["change", "async / sync", "sync, s a step", "async, s a step", "trainer idle", "rollout idle"],
            rows,
        )
        + f"\nOver all runs the phases of trainer and engines miss the wall time by at most "
        f"{settings['largest_gap_between_phases_and_wall_time']:.2%}; the machine was at most "
        f"{settings['machine_cpu_share_largest']:.0%} busy, and {settings['floors_missed']} of "
        f"{settings['floors']} train steps took this machine longer than the emulated device.\n"
    )


def _by_eta(one: Entry) -> str:
    rows = [
        [str(row["eta"]), figure(row["tokens_per_second"]), figure(row["over_colocated_sync"]),
         figure(row["over_eta_0_same_split"]), share(row["trainer_idle"]), share(row["rollout_idle"]),
         figure(row["staleness_mean"]), str(row["staleness_max"]), share(row["share_over_eta"])]
        for row in one["settings"]["by_eta"]
    ]  # fmt: skip
    return "## By η, 3 devices generate and 1 trains\n\n" + table(
        ["η", "trained tokens/s", "over colocated sync", "over η = 0, same split", "trainer idle", "rollout idle",
         "staleness, mean", "largest", "older than η"],
        rows,
    )  # fmt: skip


def _by_split(one: Entry) -> str:
    rows = [
        [row["split"], figure(row["over_colocated_sync"]), share(row["trainer_idle"]), share(row["rollout_idle"]),
         share(row["weight_sync"])]
        for row in one["settings"]["by_split"]
    ]  # fmt: skip
    return "## By split (devices that generate : devices that train), η = 4\n\n" + table(
        ["split", "async / sync", "trainer idle", "rollout idle", "weight sync"], rows
    )


def _devices(one: Entry) -> str:
    settings = one["settings"]
    lengths = settings["lengths"]
    rows = [[f"`{name}`", f"{value:.4g}"] for name, value in settings["device_model"].items()]
    sources = "".join(f"- **{name}**: {text}\n" for name, text in settings["sources"].items())
    return (
        "## The emulated device\n\n"
        + table(["constant", "value"], rows)
        + f"\n{sources}\nLengths: lognormal with sigma {lengths['sigma']:g}, cut at {lengths['limit']:,}, mean "
        f"{lengths['mean']:,.0f} after the cut, by a seeded draw from prompt and place in the group; "
        f"{settings['trajectories_per_step']} trajectories a step in groups of {settings['group_size']}.\n"
    )


def _real(one: Entry) -> str:
    rows = [
        [str(row["eta"]), figure(row["seconds_per_step"]), figure(row["trained_tokens_per_second"]),
         share(row["trainer_idle"]), share(row["rollout_idle"]), share(row["weight_sync"]),
         share(row["engines_paused"]), figure(row["staleness_mean"])]
        for row in one["settings"]["by_eta"]
    ]  # fmt: skip
    machine = one["machine"]
    load = machine["load_average_at_the_end"]
    busy = (
        "**Other work kept the cores busy.** A run with two processes at work at once then gets more of them "
        "than one whose processes take turns: the ratio flatters asynchrony and is to be measured again on a quiet "
        "machine.\n\n"
        if load > 2 * machine["processors"]
        else ""
    )
    return (
        f"## Real SGLang, no emulation, {machine['processors']} processor cores\n\n"
        f"One engine and one trainer, {one['settings']['model']}; {machine['processor']}, load average at the end "
        f"{load}.\n\n{busy}"
        + table(
            ["η", "s a step", "trained tokens/s", "trainer idle", "rollout idle", "weight sync", "engine paused",
             "staleness, mean"],
            rows,
        )
    )  # fmt: skip


def _ablation(one: Entry) -> str:
    settings = one["settings"]
    parts = ["## What staleness costs in learning\n", _lag_table(settings["setting"], settings["table"])]
    fast = settings["too_high_learning_rate"]
    parts += ["\nWith a learning rate that is too high and half the batch:\n"]
    parts += [_lag_table(fast["setting"], fast["table"])]
    return "\n".join(parts)


def _lag_table(setting: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    def seeds(values: list[float]) -> str:
        return f"{mean(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})"

    cells = [
        [str(row["lag"]), "both" if row["lag"] == 0 else {"ppo": "naive"}.get(row["objective"], "decoupled"),
         seeds(row["curve_means"]), seeds(row["last_20_means"]), figure(row["largest_weight"]),
         f"{row['mean_abs_log_weight']:.4f}"]
        for row in rows
    ]  # fmt: skip
    return (
        f"Learning rate {setting['learning_rate']:g}, {setting['prompts']} x {setting['group_size']} a batch, "
        f"{setting['steps']} steps; every batch is exactly the lag old.\n\n"
        + table(
            ["lag", "objective", "mean reward (by seed)", "last 20 versions", "max w", "mean \\|log w\\|"],
            cells,
        )
    ).replace("\\\\|", "\\|")


def _microbatches(one: Entry) -> str:
    rows = [
        [name, figure(row["microbatches_per_rank"]), figure(row["bin_use"]), figure(row["flops_imbalance"]),
         figure(row["seconds"])]
        for name, row in one["settings"]["table"].items()
    ]  # fmt: skip
    return "## Microbatches\n\n" + table(
        ["way", "microbatches a rank", "bin use", "FLOPs imbalance", "modelled seconds a minibatch"], rows
    )


def _simulation(one: Entry) -> str:
    settings = one["settings"]
    load, reports = settings["load"], settings["with_quotas"]

    def total(name: str) -> int:
        return round(sum(report[name] for report in reports))

    rows = [
        [row["team"], str(row["nominal"]), f"{row['runs']:,}", _duration(row["wait_p50"]), _duration(row["wait_p90"]),
         _duration(row["wait_p50_without"]), _duration(row["wait_p90_without"]), figure(row["received"])]
        for row in settings["teams"]
    ]  # fmt: skip
    return (
        "## The scheduler over simulated days\n\n"
        f"The real scheduling function on {load['nodes']} nodes of {load['slots_per_node']} slots, "
        f"{load['days']:g} days, {len(reports)} seeds: {total('runs'):,} runs by a Poisson process with a daily cycle, "
        f"an offered load of {load['offered_load']:.0%}, lognormal durations. Utilization "
        f"{share(mean(report['utilization'] for report in reports))} of the nodes that are up; {total('preemptions')} "
        f"preemptions lost {total('lost_gpu_seconds_of_preemptions') / 3600:,.0f} slot-hours and no run was preempted "
        f"more than {max(report['most_preemptions_of_a_run'] for report in reports)} times; {total('node_failures')} "
        f"node failures lost {total('lost_gpu_seconds_of_failures') / 3600:,.0f} slot-hours. The baseline has no "
        "nominal quotas: it gives all teams equal shares.\n\n"
        + table(
            ["team", "nominal slots", "runs", "wait p50", "wait p90", "p50, baseline", "p90, baseline",
             "slots over fair share"],
            rows,
        )
    )  # fmt: skip


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
