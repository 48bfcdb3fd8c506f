#!/usr/bin/env python3
"""Writes what the dashboard knows of the API from the control plane's own code, or checks that it is up to date.

    .venv/bin/python webui/generate_types.py [--check]

src/api/schema.d.ts          types of every request and answer, from the OpenAPI document
src/api/run-spec.schema.json JSON schema of the RunSpec, from which the start form is made
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WEBUI = Path(__file__).resolve().parent
ROOT = WEBUI.parent
TYPES = WEBUI / "src" / "api" / "schema.d.ts"
RUN_SPEC = WEBUI / "src" / "api" / "run-spec.schema.json"
HEAD = "// Written by generate_types.py from the control plane's OpenAPI document. Do not edit.\n\n"


def openapi_document() -> str:
    """The document that /api/v1/openapi.json serves; no database is asked for it."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}",
        "DJANGO_SETTINGS_MODULE": "control_plane.settings",
        "DATABASE_URL": "postgresql://nobody:nothing@127.0.0.1:1/none",
        "SECRET_KEY": "only-for-the-schema",
    }
    command = [sys.executable, "-m", "django", "spectacular", "--format", "openapi-json"]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def typescript(document: str) -> str:
    """The same document as TypeScript types, by the openapi-typescript of webui/node_modules."""
    program = WEBUI / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
    if not program.exists():
        raise SystemExit(f"{program} is absent; run `npm ci` in {WEBUI} first")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "openapi.json"
        target = Path(folder) / "schema.d.ts"
        source.write_text(document)
        command = [
            "node",
            str(program),
            str(source),
            "--output",
            str(target),
            "--root-types",
            "--root-types-no-schema-prefix",
        ]
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(command, cwd=WEBUI, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"openapi-typescript failed with status {done.returncode}: {done.stderr}")
        return HEAD + target.read_text()


def run_spec_schema() -> str:
    sys.path.insert(0, str(ROOT / "platform"))
    from oolong.contracts.run_spec import RunSpec

    return json.dumps(_shown(RunSpec.model_json_schema()), indent=1) + "\n"


def _shown(node: Any) -> Any:
    """What the form reads of a schema: without the titles, which repeat the names, and the ban on other keys."""
    if isinstance(node, list):
        return [_shown(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _shown(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str)) and (key, value) != ("additionalProperties", False)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a file is out of date"
    )
    only_check = parser.parse_args().check
    wanted = {TYPES: typescript(openapi_document()), RUN_SPEC: run_spec_schema()}
    outdated = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in outdated:
        print(
            f"{path.relative_to(ROOT)} is {'out of date; run webui/generate_types.py' if only_check else 'written'}"
        )
        if not only_check:
            path.write_text(wanted[path])
    return 1 if only_check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
