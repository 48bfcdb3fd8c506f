"""The synchronous client is generated: current, complete, importable and typed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from local_stack import sync_client
from local_stack.errors import StackError
from local_stack.paths import checkout_paths


@pytest.fixture
def copy(tmp_path: Path, checkout: Path) -> Path:
    aio = sync_client.CLIENT / "aio"
    shutil.copytree(checkout / aio, tmp_path / aio)
    return tmp_path


def test_the_checkout_has_a_current_client(checkout: Path) -> None:
    assert sync_client.is_current(checkout)


def test_it_is_generated_again_when_a_source_changes_or_disappears(copy: Path) -> None:
    sync_client.generate(copy)
    generated = copy / sync_client.CLIENT / "sync"
    assert sync_client.is_current(copy)
    aio = copy / sync_client.CLIENT / "aio"
    (aio / "secrets.py").unlink()
    with (aio / "tokens.py").open("a") as file:
        file.write(
            "\n\nasync def again(connection: AsyncConnection) -> None:\n    await connection.close()\n"
        )
    assert not sync_client.is_current(copy)
    sync_client.generate(copy)
    assert sync_client.is_current(copy)
    assert (
        "\n\ndef again(connection: Connection) -> None:\n    connection.close()\n"
        in (generated / "tokens.py").read_text()
    )
    assert {file.name for file in generated.iterdir()} == {file.name for file in aio.glob("*.py")}
    assert {entry.name for entry in generated.parent.iterdir()} == {"aio", "sync"}


def test_a_failed_generation_names_the_command_to_run(copy: Path) -> None:
    (copy / ".venv" / "bin").mkdir(parents=True)
    (copy / ".venv" / "bin" / "python").symlink_to(shutil.which("false") or "/bin/false")
    with pytest.raises(StackError, match=r"manage\.py setup"):
        sync_client.ensure(checkout_paths(copy))
