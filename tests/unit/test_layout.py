"""The layout of the checkout: packages, file sizes, imports."""

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

OURS = ("platform", "gpu_agents", "trainers")
LONGEST_FILE_LINES = 700


def _sources(checkout: Path, *folders: str) -> list[Path]:
    found = []
    for folder in folders:
        found += [path for path in (checkout / folder).rglob("*.py") if "node_modules" not in path.parts]
    return found


def test_the_folder_platform_is_not_a_package(checkout):
    """`platform/__init__.py` would shadow the standard library's module for everything run from the root."""
    assert not (checkout / "platform" / "__init__.py").exists()
    assert not (checkout / "tests" / "platform").exists()


def test_no_test_folder_is_a_package(checkout):
    assert not list((checkout / "tests").rglob("__init__.py"))


def test_the_standard_library_still_wins_from_the_root_of_the_checkout(checkout):
    code = "import platform, uuid; print(platform.system())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "Linux"


def test_no_file_is_too_long_to_read(checkout):
    long = {
        str(path.relative_to(checkout)): count
        for path in _sources(checkout, *OURS)
        if path.name != "generated.py" and (count := len(path.read_text().splitlines())) > LONGEST_FILE_LINES
    }
    assert not long, f"cut these by noun: {long}"


def _imports_of(name: str, file: Path, modules: dict[str, Path]) -> set[str]:
    """Modules of ours that a file imports, at its top or within a function."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {target if target in modules else node.module for target in targets}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules.keys() - {name}


def test_modules_import_each_other_without_cycles(checkout):
    modules = {}
    for root in (checkout / "platform", checkout):
        for package in ("control_plane", "local_stack", "oolong", "gpu_agents", "trainers"):
            for file in (root / package).rglob("*.py"):
                name = ".".join(file.relative_to(root).with_suffix("").parts)
                modules[name.removesuffix(".__init__")] = file
    assert len(modules) > 500
    graph = {name: _imports_of(name, file, modules) for name, file in modules.items()}
    assert "control_plane.runs.models" in graph["control_plane.runs.events"]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_local_stack_needs_only_the_standard_library_to_be_imported(checkout):
    """manage.py runs it before any environment exists; the demo alone runs later, in .venv."""
    code = "import sys; sys.path.insert(0, 'platform'); import local_stack.commands; print('ok')"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "ok", done.stderr


def test_the_sandbox_needs_only_the_standard_library_to_be_imported(checkout):
    """The control plane, nodes and a normal user's Python without any package import the same one."""
    code = "import sys; sys.path.insert(0, 'platform'); import oolong.sandbox; print('ok')"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "ok", done.stderr


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX", "HACK"])
def test_nothing_is_left_for_later_in_the_code(checkout, word):
    pattern = re.compile(rf"\b{word}\b")
    places = [
        f"{path.relative_to(checkout)}:{number}"
        for path in _sources(checkout, *OURS)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not places
