"""Stands where the node Python stands: takes `-m sglang.launch_server` and its flags, serves the scripted engine.

Beside the job directory, the file `token_seconds` sets its speed, and `die_at_boot` makes it end before it serves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from tests.unit.rollout.scripted_engine import ScriptedEngine


def main() -> None:
    if sys.argv[1:3] != ["-m", "sglang.launch_server"]:
        sys.exit(f"this is no Python, it only launches SGLang: {sys.argv}")
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--config", type=Path, required=True)
    arguments, _others = parser.parse_known_args(sys.argv[3:])
    jobs = arguments.config.parent.parent
    if (jobs / "die_at_boot").exists():
        sys.exit(17)
    engine = ScriptedEngine(
        token_seconds=float((jobs / "token_seconds").read_text()),
        api_key=json.loads(arguments.config.read_text())["api-key"],
    )
    asyncio.run(engine.serve_for_ever(arguments.port))


if __name__ == "__main__":
    main()
