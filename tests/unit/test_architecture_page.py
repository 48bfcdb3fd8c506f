"""The documents name files and functions that exist, and each call on the architecture page is one in the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "architecture.md", *ROOT.glob("docs/concepts/*.md"), *ROOT.glob("docs/how-to/*.md")]
PAGE = "".join(page.read_text() for page in PAGES)
PLACES = sorted(
    set(re.findall(r"`((?:platform|gpu_agents|trainers|tests|webui)/[\w/.-]+)(?:::(\w+))?`", PAGE))
)


def test_the_page_names_many_places():
    assert len(PLACES) > 40


@pytest.mark.parametrize(("file", "name"), PLACES, ids=["::".join(filter(None, place)) for place in PLACES])
def test_a_named_place_exists(file, name):
    path = ROOT / file
    assert path.exists()
    if name:
        assert re.search(rf"^\s*(?:async )?(?:def|class) {name}\b", path.read_text(), re.MULTILINE)


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
END = r"`([\w/.-]+)(?:::(\w+))?`"
CALLS = re.findall(rf"^\| {END} \| (?:`([\w/.]+)`|import) \| {END} \|$", ARCHITECTURE, re.MULTILINE)
ARROWS = re.findall(r"^ +(\w+) -->\|[^|]+\| (\w+)$", ARCHITECTURE, re.MULTILINE)
FOLDERS = {"browser": "webui/"} | dict(
    re.findall(r"^\| `(\w+)`: .* \| `([\w/]+/)` \|", ARCHITECTURE, re.MULTILINE)
)


def test_the_chart_names_the_six_processes_and_the_table_their_calls():
    assert {name for arrow in ARROWS for name in arrow} == set(FOLDERS) and len(FOLDERS) == 7
    rows = ARCHITECTURE.partition("## The calls")[2].partition("\n## ")[0].count("\n| `")
    assert len(CALLS) == rows > 0
    for caller, callee in ARROWS:
        assert any(
            call[0].startswith(FOLDERS[caller]) and call[3].startswith(FOLDERS[callee]) for call in CALLS
        ), f"no row of the table is a call from {caller} to {callee}"


@pytest.mark.parametrize(
    ("caller", "_name", "address", "callee", "name"), CALLS, ids=[f"{call[0]}-{call[3]}" for call in CALLS]
)
def test_a_caller_imports_or_addresses_its_callee(caller, _name, address, callee, name):
    text = (ROOT / caller).read_text()
    if not address:
        module = callee.removeprefix("platform/").removesuffix(".py").replace("/", ".")
        assert module in imported_modules(text)
        assert name in text
    elif address.startswith("/"):
        base, _, last = address.rpartition("/")
        assert address in text or (f"{base}/" in text and f'"{last}"' in text)
        assert serves(callee, address.removeprefix("/api/v1").lstrip("/"), name)
    elif "." in address:  # a module to start
        assert f'"{address}"' in text
        assert callee.removesuffix(".py").removesuffix("/__main__").replace("/", ".") == address
    else:  # an RPC method
        assert f'"{address}"' in text and f'"{address}"' in (ROOT / callee).read_text()


def imported_modules(text):
    """Modules, and what is imported from them, which may be a module too."""
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return modules


def serves(file, route, view):
    """Whether the app of `file` maps the route to the view."""
    files = [folder / name for folder in (ROOT / file).parents for name in ("urls.py", "routing.py")]
    mapping = re.compile(rf'path\("{re.escape(route)}", (?:\w+\.)?{view}\b')
    return any(mapping.search(path.read_text()) for path in files if path.is_file())
