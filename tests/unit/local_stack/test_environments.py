"""Environments: keyed by their package lists, ready only when complete, with readable failures."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from local_stack import environments
from local_stack.environments import READY, Environment, Install, environment_key, explain_pip_failure
from local_stack.errors import StackError
from local_stack.paths import checkout_paths


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    lists = tmp_path / "list.txt"
    lists.write_text("left-pad==1.0\n")
    return Environment(name="test", path=tmp_path / "env", installs=(Install(lists),), size="nothing")


def _finish(environment: Environment, key: str) -> None:
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text("#!/bin/sh\n")
    environment.python.chmod(0o755)
    (environment.path / READY).write_text(json.dumps({"key": key}))


def test_key_changes_with_a_list_and_its_alternatives(tmp_path):
    lists = tmp_path / "list.txt"
    lists.write_text("a==1\n")
    first = environment_key((Install(lists),))
    other = tmp_path / "other.txt"
    other.write_text("b==1\n")
    assert environment_key((Install(lists, alternatives=(Install(other),)),)) != first
    lists.write_text("a==2\n")
    assert environment_key((Install(lists),)) != first


def test_environment_without_marker_is_not_ready(environment):
    assert not environment.is_ready()
    _finish(environment, environment.key)
    assert environment.is_ready()
    (environment.path / READY).unlink()
    assert not environment.is_ready()


def test_environment_of_an_older_list_is_not_ready(environment):
    _finish(environment, "0" * 16)
    assert not environment.is_ready()


def test_environment_without_its_python_is_not_ready(environment):
    _finish(environment, environment.key)
    os.unlink(environment.python)
    assert not environment.is_ready()


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError'", "could not be reached"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "PIP_INDEX_URL"),
        ("ERROR: No matching distribution found for torch==2.13.0", "has no such file"),
    ],
)
def test_pip_failure_is_explained_with_its_output_and_a_fix(tmp_path, output, advice):
    log = tmp_path / "setup.log"
    log.write_text(f"Collecting things\n{output}\n")
    message = explain_pip_failure(log, what="node.txt")
    assert output in message
    assert advice in message
    assert str(log) in message


def _fake_pip(environment: Environment, *outputs: str) -> None:
    """A fake pip that fails with each output in turn, then succeeds."""
    environment.python.parent.mkdir(parents=True)
    said = environment.path / "said"
    said.mkdir()
    for number, output in enumerate(outputs):
        (said / str(number)).write_text(f"{output}\n")
    environment.python.write_text(
        f'#!/bin/sh\nfor file in "{said}"/*; do test -e "$file" || exit 0; cat "$file"; rm "$file"; exit 1; done\n'
    )
    environment.python.chmod(0o755)


@pytest.mark.parametrize(
    "output",
    [
        "urllib3.exceptions.ProtocolError: ('Connection broken: IncompleteRead(7 bytes read)')",
        "ERROR: HTTP error 503 while getting it: 503 Service Unavailable",
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
    ],
)
def test_broken_download_is_resumed(environment, tmp_path, output):
    log, messages = tmp_path / "setup.log", []
    log.write_text("")
    _fake_pip(environment, output, output)
    environments._pip(environment, environment.installs[0], log=log, echo=messages.append)
    assert [line.endswith(f"(attempt {number} of 4).") for number, line in enumerate(messages[:2], 2)] == [
        True
    ] * 2


def test_repeatedly_broken_download_and_other_errors_end_setup(environment, tmp_path):
    log, messages = tmp_path / "setup.log", []
    log.write_text("")
    _fake_pip(environment, *["ReadTimeoutError: Read timed out"] * 4)
    with pytest.raises(environments.StackError, match="could not be reached"):
        environments._pip(environment, environment.installs[0], log=log, echo=messages.append)
    assert len(messages) == 3
    (environment.path / "said" / "0").write_text("ERROR: No space left on device\n")
    with pytest.raises(environments.StackError, match="disk is full"):
        environments._pip(environment, environment.installs[0], log=log, echo=messages.append)
    assert len(messages) == 3, "a full disk is not retried"


def test_lists_name_no_index_and_pin_every_package(checkout):
    for file in sorted((checkout / "constraints").glob("*.txt")):
        for line in file.read_text().splitlines():
            assert "://" not in line, f"{file.name}: {line}"
            if line and line[0].isalnum():
                assert "==" in line, f"{file.name}: {line}"


def test_packages_of_venv_are_pinned(checkout):
    """Otherwise they are years old and no audit checks them."""
    text = (checkout / "constraints" / "platform.txt").read_text()
    for name in ("pip", "setuptools"):
        assert f"\n{name}==" in text


def test_every_installed_package_has_a_hash(checkout):
    paths = checkout_paths(checkout)
    made = [environments.platform_environment(paths)]
    made += [environments.node_environment(paths, device=device) for device in ("cpu", "cuda")]
    files = {file for environment in made for install in environment.installs for file in install.files()}
    assert len(files) == 7
    for file in files:
        pins = [line for line in file.read_text().splitlines() if line and line[0].isalnum()]
        assert pins and all(line.endswith("\\") for line in pins), file.name


def test_libraries_of_public_torch_match_the_cuda_list(checkout):
    of_gpus = (checkout / "constraints" / "node-cuda.txt").read_text()
    text = (checkout / "constraints" / "node-torch-libraries.txt").read_text()
    for pin in text.split("\n", 1)[1].rstrip().replace("\n    ", "").splitlines():
        assert pin in of_gpus.replace("\n    ", ""), pin


@pytest.mark.parametrize(
    ("said", "installed"),
    [
        ("", ["first.txt"]),
        ("ERROR: No matching distribution found for left-pad", ["first.txt", "second.txt", "third.txt"]),
        ("ERROR: ResolutionImpossible: for help visit", ["first.txt", "second.txt", "third.txt"]),
    ],
    ids=["offered", "not offered", "not offered, and constrained by pip's configuration"],
)
def test_alternatives_are_installed_if_the_index_lacks_a_build(tmp_path, monkeypatch, said, installed):
    lists = [tmp_path / name for name in ("first.txt", "second.txt", "third.txt")]
    for file in lists:
        file.write_text("left-pad==1.0\n")
    first, second, third = lists
    install = Install(first, alternatives=(Install(second), Install(third)))
    environment = Environment(name="test", path=tmp_path / "env", installs=(install,), size="nothing")
    called: list[str] = []

    def run_pip(_: Environment, words: list[str], *, log: Path, wanted: int) -> int:
        called.append(Path(words[-1]).name)
        if said and words[-1] == str(first):
            log.write_text(said)
            return 1
        return 0

    monkeypatch.setattr(environments, "_run_pip", run_pip)
    log = tmp_path / "log"
    log.write_text("")
    environments._pip(environment, install, log=log, echo=lambda _: None)
    assert called == installed


def test_shared_packages_have_one_version(checkout):
    def pins(name: str) -> dict[str, str]:
        lines = (checkout / "constraints" / name).read_text().splitlines()
        return dict(line.split(" ")[0].split("==") for line in lines if line and line[0].isalnum())

    platform, node = pins("platform.txt"), pins("node.txt")
    # Packages that serialize data between the environments must agree; others may differ.
    for name in ("msgspec", "pydantic", "tokenizers", "jinja2", "numpy", "safetensors", "pyyaml"):
        assert platform[name] == node[name], name


def test_cpu_and_cuda_node_environments_have_different_folders(tmp_path, checkout):
    if not (checkout / "constraints" / "node-cuda.txt").exists():
        pytest.fail("constraints/node-cuda.txt is missing; make it with constraints/lock.sh")
    paths = checkout_paths(checkout)
    cpu = environments.node_environment(paths, device="cpu")
    assert cpu.path != environments.node_environment(paths, device="cuda").path


def test_cuda_environment_installs_public_torch_by_hash(checkout):
    text = (checkout / "constraints" / "node-torch-cuda.txt").read_text()
    assert "\ntorch===" in text, "with == pip prefers a CPU-only 2.13.0+cpu where one is offered"
    pinned = (checkout / "constraints" / "node-torch.txt").read_text().rpartition("torch==")[2].strip()
    assert f"\ntorch==={pinned} " in text
    made = environments.node_environment(checkout_paths(checkout), device="cuda")
    assert made.needs_cuda and all("--require-hashes" in install.arguments() for install in made.installs)


def test_no_list_has_a_package_that_downloads_from_another_index(checkout):
    text = (checkout / "constraints" / "node-cuda.txt").read_text()
    assert "\ncuda-tile==1.6.0 " in text, "1.6.0rc5 is an archive that asks another index, unhashed"


@pytest.mark.parametrize("cuda", [None, "13.0"])
def test_cpu_torch_with_device_cuda_is_rejected_with_a_fix(tmp_path, monkeypatch, checkout, cuda):
    module = tmp_path / "torch"
    module.mkdir()
    (module / "__init__.py").write_text("raise ImportError('no libraries yet')\n")
    (module / "version.py").write_text(f"cuda = {cuda!r}\n")
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    made = Environment("node", tmp_path / "env", (), "nothing", needs_cuda=True)
    monkeypatch.setattr(environments, "_make_venv", lambda path: None)
    paths = replace(checkout_paths(checkout), root=tmp_path)
    if cuda:
        environments.ensure(made, paths=paths, echo=lambda _: None)
        assert made.is_ready()
        return
    with pytest.raises(StackError, match="CPU-only build, and the device is cuda") as refused:
        environments.ensure(made, paths=paths, echo=lambda _: None)
    assert "extra-index-url" in str(refused.value) and not made.is_ready()
