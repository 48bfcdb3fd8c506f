"""A chat template rendered with limits: what it makes, or why it makes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from oolong.model_validation import chat_template, rendering
from oolong.model_validation.chat_template import TemplateSource, find_template, render
from oolong.sandbox import SandboxUnsupported
from tests.support.model_files import TEMPLATE


def asked(template: str) -> dict[str, Any]:
    return {"template": template, "special": {"bos_token": "<s>"}, "messages": rendering.CONVERSATION}


def test_a_template_makes_a_prompt_of_the_conversation() -> None:
    found = render(asked("{{ bos_token }}" + TEMPLATE))
    assert found["text"].startswith("<s><user>What is 2 + 3?<assistant>5")
    assert found["code"] == ""


@pytest.mark.parametrize(
    ("template", "code", "said"),
    [
        ("{% for", "template_syntax", "line 1"),
        ("{{ tokens.first }}", "template_undefined", "'tokens' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "template_forbidden", "__class__"),
        ("{{ messages.append(1) }}", "template_forbidden", "append"),
        ("{{ raise_exception('no system role') }}", "template_error", "no system role"),
        ("{{ 1 / 0 }}", "template_error", "ZeroDivisionError"),
        ("always the same", "template_drops_message", "says last"),
    ],
)
def test_template_error_has_a_code_and_a_message(template: str, code: str, said: str) -> None:
    found = render(asked(template))
    assert (found["text"], found["code"]) == ("", code)
    assert said in found["message"]


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def test_without_a_sandbox_a_process_with_limits_renders_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> Any:
        raise SandboxUnsupported("there is none in this test")

    monkeypatch.setattr(rendering, "probe_sandbox", refuse)
    preview = rendering.render_preview(TemplateSource(TEMPLATE, "chat_template.jinja", {}))
    assert (preview.isolation, preview.fault) == ("process", None)
    assert preview.text.endswith("<user>And twice that?<assistant>")
    for template, code, seconds in (
        (ENDLESS, "template_time", 1),
        ("{{ 'x' * 10**10 }}", "template_memory", 60),  # a slow machine takes a while to get there
    ):
        monkeypatch.setattr(rendering, "CPU_SECONDS", seconds)
        fault = rendering.render_preview(TemplateSource(template, "chat_template.jinja", {})).fault
        assert fault is not None
        assert (fault.pointer, fault.code) == ("/files/chat_template.jinja", code)


def test_the_default_of_several_templates_is_taken(tmp_path: Any) -> None:
    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    settings = {"chat_template": several, "bos_token": {"content": "<s>"}, "eos_token": None}
    assert find_template({}, settings) == TemplateSource(
        "plain", "tokenizer_config.json", {"bos_token": "<s>"}
    )
    (tmp_path / chat_template.FILE).write_text("of the file")
    found = find_template({chat_template.FILE: tmp_path / chat_template.FILE}, settings)
    assert found is not None and found.text == "of the file"
    assert find_template({}, {"chat_template": several[:1]}) is None
