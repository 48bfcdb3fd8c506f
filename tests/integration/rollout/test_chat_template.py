"""Prompts rendered without transformers equal those rendered with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_agents.rollout.chat_template import ChatTemplate
from tests.integration.rollout.conftest import TinyModel, run_with_node_python

CONVERSATIONS = [
    [{"role": "user", "content": "a5 b7 c9"}],
    [
        {"role": "system", "content": "Be brief.\n"},
        {"role": "user", "content": "  Ünïcode ☕ <|end|> {{ x }} "},
    ],
    [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "and\ttwice?"},
    ],
]

# White-space control, loops with a state, filters, a generation block and a loop control, as real templates have.
RICH_TEMPLATE = """
{%- set ns = namespace(count=0) %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{% continue %}{% endif %}
    {%- set ns.count = ns.count + 1 %}
    {{- '<|' ~ message.role ~ '|>' ~ message.content | trim ~ '\\n' }}
    {%- if message.role == 'assistant' %}{% generation %}{{ eos_token }}{% endgeneration %}{% endif %}
    {% if loop.last %}
    {{ {'turns': ns.count, 'text': message.content} | tojson }}
    {% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}
"""


@pytest.mark.parametrize("template", ["of the model", "rich"])
def test_text_and_token_ids_equal_those_of_transformers(
    tiny: TinyModel, tmp_path: Path, template: str
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        (model / file).write_bytes((tiny.base / file).read_bytes())
    if template == "rich":
        (model / "chat_template.jinja").write_text(RICH_TEMPLATE)
    (tmp_path / "messages.json").write_text(json.dumps(CONVERSATIONS))
    expected = json.loads(
        run_with_node_python(
            tiny.node_python, "render_prompts.py", str(model), str(tmp_path / "messages.json")
        )
    )
    ours = ChatTemplate(model)
    rendered = [ours.render(messages) for messages in CONVERSATIONS]
    assert rendered == [entry["text"] for entry in expected]
    assert [ours.encode(text) for text in rendered] == [entry["token_ids"] for entry in expected]
