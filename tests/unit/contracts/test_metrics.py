"""The metric catalogue is whole: it has what is written and nothing else, and the dashboard asks for no other."""

import ast
import re
from pathlib import Path

from oolong.contracts.metrics import HISTOGRAMS, METRICS

ROOT = Path(__file__).resolve().parents[3]
CATALOGUE = METRICS.keys() | HISTOGRAMS.keys()
NAMESPACES = {name.split("/")[0] for name in CATALOGUE}
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


def test_every_metric_that_is_written_is_in_the_catalogue() -> None:
    unknown = {name: place for name, place in written_names().items() if name not in CATALOGUE}
    assert not unknown, f"add a line to oolong/contracts/metrics.py: {unknown}"


def test_every_metric_of_the_catalogue_is_written_by_somebody() -> None:
    assert not sorted(CATALOGUE - written_names().keys()), "nobody writes these: take them out, or write them"


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


def test_the_dashboard_asks_only_for_metrics_of_the_catalogue() -> None:
    asked = {
        name: str(path.relative_to(ROOT))
        for path in sorted((ROOT / "webui" / "src").rglob("*.ts*"))
        if ".test." not in path.name and path.name != "schema.d.ts"
        for name in re.findall(rf'"({NAME.pattern})"', path.read_text())
    }
    assert len(asked) > 20, "the pattern finds no names any more"
    assert not {name: path for name, path in asked.items() if name not in CATALOGUE}


def test_a_metric_that_ends_in_a_unit_has_that_unit() -> None:
    for metric in [*METRICS.values(), *HISTOGRAMS.values()]:
        assert "/" in metric.name and len(metric.help) > 10, metric
        for ending, unit in (("_seconds", "seconds"), ("_share", "share"), ("_bytes", "bytes")):
            if metric.name.endswith(ending):
                assert metric.unit == unit, metric
