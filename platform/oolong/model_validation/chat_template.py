"""A model's chat template: where it lies, and the program that renders it.

The template is a user's program. This file is run by its text in the sandbox, or as a process with limits
(`rendering`), so it imports nothing of ours. Settings and globals are those that transformers gives a template; a test
of the node lane compares the two.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FILE, SETTINGS_FILE = "chat_template.jinja", "tokenizer_config.json"
MAX_BYTES = 1024 * 1024
MAX_RENDERED = 20_000  # characters that are kept of what it makes


class TemplateSource(NamedTuple):
    text: str
    file: str  # of the directory that has it
    special: dict[str, str]  # bos_token and others, by name


def find_template(files: Mapping[str, Path], settings: Mapping[str, Any]) -> TemplateSource | None:
    """The template of a model directory, by its files and its tokenizer_config.json. None where there is none."""
    special = {name: token_text(settings[name]) for name in SPECIAL_TOKENS if settings.get(name)}
    if FILE in files:
        with files[FILE].open("rb") as file:
            return TemplateSource(file.read(MAX_BYTES).decode(errors="replace"), FILE, special)
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = [
            one.get("template") for one in template if isinstance(one, dict) and one.get("name") == "default"
        ]
        template = named[-1] if named else None
    return TemplateSource(template[:MAX_BYTES], SETTINGS_FILE, special) if isinstance(template, str) else None


def token_text(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def environment() -> Any:
    """jinja2's immutable sandbox, with what templates expect."""
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationBlock(Extension):
        """`{% generation %}` marks assistant text for trainers; for a prompt it is only its content."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    def refuse(message: str) -> str:
        raise jinja2.TemplateError(message)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = _strftime_now
    return made


def render(asked: Mapping[str, Any]) -> dict[str, str]:
    """`text`, or `code` and `message` of why there is none. `asked`: template, special, messages."""
    import jinja2

    try:
        template = environment().from_string(asked["template"])
        text = template.render(
            messages=asked["messages"], add_generation_prompt=True, tools=None, **asked["special"]
        )
    except jinja2.TemplateSyntaxError as error:
        return _refused("template_syntax", f"line {error.lineno}: {error.message}")
    except jinja2.exceptions.SecurityError as error:
        return _refused("template_forbidden", f"it does what the template sandbox forbids: {error}")
    except jinja2.UndefinedError as error:
        return _refused("template_undefined", f"it uses what is not defined: {error}")
    except MemoryError:
        return _refused("template_memory", "it takes more memory than a template may have")
    except Exception as error:  # noqa: BLE001 - whatever a template does is reported to its author
        return _refused("template_error", f"{type(error).__name__}: {error}")
    if asked["messages"][-1]["content"] not in text:
        return _refused(
            "template_drops_message", "what the user says last is not in the prompt that it makes"
        )
    return {"text": text[:MAX_RENDERED], "code": "", "message": ""}


def _refused(code: str, message: str) -> dict[str, str]:
    return {"text": "", "code": code, "message": message[:1000]}


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, which a prompt is not.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


if "report" in globals():  # given by the sandbox, with `common`
    report(render(common))  # type: ignore[name-defined]  # noqa: F821
elif __name__ == "__main__":
    json.dump(render(json.load(sys.stdin)), sys.stdout)
