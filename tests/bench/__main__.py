"""Measure, and write docs/benchmarks: `python3 manage.py bench [--only KEY,KEY] [--list] [--page]`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from tests.bench.measures import MEASURES, PROGRAMS, Program
from tests.bench.page import write_page
from tests.bench.record import ROOT, add_results
from tests.tools.local_attempt import node_python


class MeasureFailed(Exception):
    """A program ended with an error, took too long, or printed something else than its measures."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="manage.py bench")
    parser.add_argument("--only", default="", help="comma-separated measures; default: all")
    parser.add_argument("--list", action="store_true", help="name the measures and end")
    parser.add_argument("--page", action="store_true", help="write the page from the results that are there")
    arguments = parser.parse_args()
    if arguments.list:
        for measure in MEASURES.values():
            print(f"{measure.key:34} {measure.goal:8} {measure.meaning}")
        return 0
    if arguments.page:
        write_page()
        return 0
    keys = [key for key in arguments.only.split(",") if key] or list(MEASURES)
    unknown = [key for key in keys if key not in MEASURES]
    if unknown:
        parser.error(f"no measure named {', '.join(unknown)}; --list names them")
    failed = []
    for program in [
        one for one in PROGRAMS.values() if any(MEASURES[key].program == one.name for key in keys)
    ]:
        load_before = os.getloadavg()[0]
        try:
            measured = [one for one in run_program(program) if one["key"] in keys]
        except MeasureFailed as error:
            failed.append(program.name)
            print(f"{program.name}: {error}", file=sys.stderr)
            continue
        add_results(measured, load_before=load_before)
        write_page()
        for one in measured:
            measure = MEASURES[one["key"]]
            met = {True: "met", False: "MISSED", None: "no goal"}[measure.is_met(one["value"])]
            print(f"{one['key']:34} {one['value']:10.4g} {one['unit']} {measure.goal} {met}", flush=True)
    if failed:
        print(f"not measured: {', '.join(failed)}; their old results stay", file=sys.stderr)
    return 1 if failed else 0


def run_program(program: Program) -> list[dict[str, Any]]:
    node = node_python()
    python = node if program.in_node_environment else sys.executable
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}", "OMP_NUM_THREADS": "1", "OOLONG_NODE_PYTHON": node,
    }  # fmt: skip
    print(f"== {program.name}", flush=True)
    try:
        done = subprocess.run(
            [python, "-W", "ignore", "-m", f"tests.bench.{program.module}", *program.part.split()],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=program.limit_seconds, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise MeasureFailed(f"not finished after {program.limit_seconds} s") from error
    if done.returncode != 0:
        raise MeasureFailed(f"ended with status {done.returncode}; its words are above")
    return parse(done.stdout)


def parse(printed: str) -> list[dict[str, Any]]:
    """The JSON that a program's output ends with: a measure, or a list of measures."""
    lines = printed.splitlines()
    starts = [number for number, line in enumerate(lines) if line[:1] in ("[", "{")]
    for start in starts:
        try:
            found = json.loads("\n".join(lines[start:]))
        except json.JSONDecodeError:
            continue
        return found if isinstance(found, list) else [found]
    raise MeasureFailed(f"printed no measures: {printed[-300:]!r}")


if __name__ == "__main__":
    sys.exit(main())
