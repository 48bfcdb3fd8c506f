"""Wheels that a GPU machine without a network lacks: `python tests/gpu/pack_wheels.py FOLDER [--python 3.12]`.

For an image that has torch, pytest and most of the rest already. Versions are those of the node environment's list.
There: `pip install --no-index --no-deps --target DIRECTORY FOLDER/*.whl`, and DIRECTORY first on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTS = ("node.txt", "node-nodeps.txt", "platform.txt")
PACKAGES = (
    "annotated-types", "msgspec", "pydantic", "pydantic-core", "tokenizers", "transformers", "typing-extensions",
    "typing-inspection",
)  # fmt: skip
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
LIMIT_BYTES = 60 * 2**20


def pinned(name: str) -> str:
    """`name==version` as the lists of constraints/ have it."""
    for file in LISTS:
        text = (ROOT / "constraints" / file).read_text()
        if found := re.search(rf"^{re.escape(name)}==(\S+)", text, flags=re.MULTILINE | re.IGNORECASE):
            return f"{name}=={found[1]}"
    raise SystemExit(f"{name} is in none of constraints/{', '.join(LISTS)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="of the GPU machine")
    options = parser.parse_args()
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    words += ["--implementation", "cp", "--python-version", options.python, "--dest", str(options.folder)]
    words += [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*words, *map(pinned, PACKAGES)], check=True)
    size = sum(wheel.stat().st_size for wheel in options.folder.glob("*.whl"))
    print(f"{len(PACKAGES)} wheels, {size / 2**20:.1f} MiB, in {options.folder}")
    if size > LIMIT_BYTES:
        raise SystemExit(f"more than {LIMIT_BYTES // 2**20} MiB: leave out what the GPU machine has")


if __name__ == "__main__":
    main()
