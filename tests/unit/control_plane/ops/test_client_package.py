"""The package of the SDK and the command: the control plane serves it, and it brings only what it needs."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from control_plane.ops.client_wheel import Wheel, client_wheel
from oolong import __version__

ROOT = Path(__file__).resolve().parents[4]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"pyyaml": "yaml"}
OPTIONAL = {"wandb", "tensorboardX", "pyarrow"}  # of some exports, which name what they lack


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    return client_wheel()


@pytest.fixture(scope="module")
def target(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel in a folder of its own, as pip installs it."""
    folder = tmp_path_factory.mktemp("client")
    (folder / wheel.filename).write_bytes(wheel.data)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target",
         str(folder / "target"), str(folder / wheel.filename)],
        check=True, timeout=120,
    )  # fmt: skip
    return folder / "target"


def python(target: Path, *words: str) -> str:
    """With the wheel and the packages of this environment, and without its checkout (-S reads no .pth file)."""
    paths = os.pathsep.join((str(target), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    done = subprocess.run(
        [sys.executable, "-S", *words], env={"PATH": os.environ["PATH"], "PYTHONPATH": paths, "HOME": str(target)},
        cwd=target, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_installs_one_package_and_the_command(target: Path) -> None:
    installed = {path.name for path in target.iterdir()}
    assert installed == {"oolong", f"oolong-{__version__}.dist-info", "bin"}
    assert {path.name for path in (target / "bin").iterdir()} == {"oolong"}
    inside = {path.name for path in (target / "oolong").iterdir()} - {"__pycache__"}
    assert inside == {
        "__init__.py", "py.typed", "cli", "client", "contracts", "exporting", "redaction.py",
        "samples", "untrusted.py", "workflow.py", "yaml_files.py",
    }  # fmt: skip


def test_every_module_of_it_imports_without_the_checkout(target: Path) -> None:
    program = (
        "import importlib, oolong, pkgutil\n"
        "names = [m.name for m in pkgutil.walk_packages(oolong.__path__, 'oolong.') if '__main__' not in m.name]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names), oolong.__file__)"
    )
    count, file = python(target, "-c", program).split(" ", 1)
    assert int(count) > 100
    assert Path(file).is_relative_to(target)


def test_its_command_tells_its_version(target: Path) -> None:
    assert python(target, str(target / "bin" / "oolong"), "--version") == f"oolong {PROJECT['version']}"


def test_it_declares_what_it_imports_and_no_more(wheel: Wheel) -> None:
    imported: set[str] = set()
    with zipfile.ZipFile(BytesIO(wheel.data)) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                imported |= _imports(archive.read(name).decode())
    declared = {requirement.partition(">=")[0] for requirement in PROJECT["dependencies"]}
    foreign = imported - set(sys.stdlib_module_names) - {"oolong"} - OPTIONAL
    known = {IMPORTED_AS.get(name, name) for name in declared}
    # pydantic_core comes with pydantic.
    assert foreign - {"pydantic_core"} == known


def _imports(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


def test_the_api_serves_it_with_its_hash_to_everybody(wheel: Wheel, client: Any) -> None:
    shown = client.get("/api/v1/client").json()
    assert (shown["version"], shown["filename"], shown["sha256"]) == (
        __version__,
        wheel.filename,
        wheel.sha256,
    )
    path = shown["url"].partition("://")[2].partition("/")[2]
    served = client.get(f"/{path}")
    assert hashlib.sha256(served.content).hexdigest() == shown["sha256"]
    line = client.get("/api/v1/client/requirements.txt").content.decode()
    assert line == f"oolong @ {shown['url']}#sha256={shown['sha256']}\n"
    assert client.get("/api/v1/client/oolong-9.9.9-py3-none-any.whl").status_code == 404


def test_a_build_that_fails_is_a_503_and_not_an_empty_package(tmp_path: Path) -> None:
    from control_plane.core.api.errors import Problem
    from control_plane.ops.client_wheel import build

    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(Problem) as refused:
        build(tmp_path)
    assert (refused.value.status, refused.value.code) == (503, "no_client_package")
