"""Stands where the node Python stands: takes `-m sglang.launch_server` and its flags, serves the scripted engine.

Beside the job directory, the file `token_seconds` sets its speed, and `die_at_boot` makes it end before it serves.
While there is a file `hold.json` in the job directory, no request gets more tokens than it says, and the file
`tokens.json` has the number of each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.unit.rollout.fake_engine import FakeEngine, FakeRequest


class HeldEngine(FakeEngine):
    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(**settings)
        self._directory = directory
        self._hold: dict[str, Any] | None = None

    def _step(self) -> None:
        try:
            self._hold = json.loads((self._directory / "hold.json").read_text())
        except FileNotFoundError:  # it may go at any moment
            self._hold = None
        super()._step()
        if self._hold is not None:
            told = self._directory / "tokens.new"
            told.write_text(json.dumps([len(request.output) for request in self.running]))
            os.replace(told, self._directory / "tokens.json")

    def may_decode(self, request: FakeRequest) -> bool:
        hold = self._hold
        if hold is None or (request.rid.startswith("probe-") and not hold["probes"]):
            return True
        return len(request.output) < int(hold["tokens"])


def main() -> None:
    if sys.argv[1:3] != ["-m", "sglang.launch_server"]:
        sys.exit(f"this is no Python, it only launches SGLang: {sys.argv}")
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--config", type=Path, required=True)
    arguments, _others = parser.parse_known_args(sys.argv[3:])
    jobs = arguments.config.parent.parent
    if (jobs / "die_at_boot").exists():
        print("no memory for this engine", file=sys.stderr)
        sys.exit(17)
    engine = HeldEngine(
        arguments.config.parent,
        token_seconds=float((jobs / "token_seconds").read_text()),
        api_key=json.loads(arguments.config.read_text())["api-key"],
    )
    asyncio.run(engine.serve_for_ever(arguments.port))


if __name__ == "__main__":
    main()
