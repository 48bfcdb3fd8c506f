"""The fenced blocks of a documentation page, and the shell script that types them in order.

A fence says what becomes of its block:

    ```sh                            typed into a shell
    ```python title="agent.py"       saved under this name, as the page's text says; so for yaml and json
    ```python                        run by python3
    ```yaml                          a part of a RunSpec: checked as a section of the quickstart's run.yaml
    ```sh not-run="a domain"         not run, for one of the reasons in `REASONS`
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide.md"
HOW_TOS = sorted((ROOT / "docs" / "how-to").glob("*.md"))

# What a block may need that a clean stack on one machine cannot have.
REASONS = {
    "a bucket",
    "a container engine",
    "a domain",
    "a GPU",
    "a Slurm cluster",
    "a model hub",
    "a second Python",
    "a second machine",
    "a second person",
    "the wandb package",
}
RUN = {"sh", "python", "yaml"}
SHOWN = {"json", "text", "promql"}  # what arrives, not what is typed

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)
INFO = re.compile(r'(?P<language>\w*)(?: title="(?P<title>[\w.-]+)")?(?: not-run="(?P<reason>[^"]+)")?')


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    title: str  # the file that the page tells the reader to save it as
    reason: str  # why it is not run
    text: str


def blocks(page: str) -> list[Block]:
    """All of a page, in order. Raises ValueError for a fence whose info string is none of the above."""
    found = []
    for fence in FENCE.finditer(page):
        line = page.count("\n", 0, fence.start()) + 1
        info = INFO.fullmatch(fence["info"].strip())
        if info is None:
            raise ValueError(f"line {line}: ```{fence['info']}")
        found.append(
            Block(
                line,
                info["language"],
                info["title"] or "",
                info["reason"] or "",
                textwrap.dedent(fence["text"]),
            )
        )
    return found


def block(page: Path, language: str, title: str = "") -> str:
    """The text of the one block of this language, and of this name where one is given."""
    [found] = [
        one for one in blocks(page.read_text()) if one.language == language and title in ("", one.title)
    ]
    return found.text


def script(page: Path) -> str:
    """A bash script that does what the page says, top to bottom; `set -x` shows the second of each command."""
    parts = ["set -euo pipefail", "PS4='+ [$SECONDS s] '", "set -x"]
    for one in blocks(page.read_text()):
        if one.reason or (one.language not in RUN and not one.title):
            continue
        parts.append(f": {page.name} line {one.line}")
        if one.title:
            parts.append(_document(f"cat > {one.title}", one.text))
        elif one.language == "python":
            parts.append(_document("python3 -", one.text))
        elif one.language == "yaml":
            part = f".{page.stem}-{one.line}.yaml"
            parts += [_document(f"cat > {part}", _whole_spec(one.text)), f"oolong run validate -f {part}"]
        else:
            parts.append(one.text)
    return "\n".join([*parts, f": {page.name} done", ""])


def _document(command: str, text: str) -> str:
    return f"{command} <<'END_OF_BLOCK'\n{text}END_OF_BLOCK"


def _whole_spec(section: str) -> str:
    sample = yaml.safe_load((ROOT / "platform" / "oolong" / "samples" / "run.yaml").read_text())
    return yaml.safe_dump({**sample, **yaml.safe_load(section)})


if __name__ == "__main__":
    print(script(Path(sys.argv[1])))
