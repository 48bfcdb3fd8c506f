"""Rendering in the sandbox. Equality with transformers is tested in tests/integration/rollout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_agents.rollout.chat_template import ChatTemplate, InvalidModelFiles
from gpu_agents.rollout.controller.prompt_store import InvalidPrompts, PromptStore
from oolong.contracts.attempt import CanonicalRow
from oolong.contracts.run_spec import RolloutSection
from tests.unit.rollout.model_files import write_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


MESSAGES = [{"role": "user", "content": "a5 b7"}]


def test_a_prompt_ends_where_the_assistant_begins(model: Path) -> None:
    template = ChatTemplate(model)
    text = template.render(MESSAGES)
    assert text == "<|user|>a5 b7<|assistant|>"
    token_ids = template.encode(text)
    assert (token_ids[0], token_ids[-1], len(token_ids)) == (258, 259, 7)
    assert template.decode(token_ids) == "a5 b7"
    assert template.decode(token_ids, skip_special_tokens=False) == text


def test_any_text_survives_the_round_trip(model: Path) -> None:
    template = ChatTemplate(model)
    text = "Ünïcode ☕ \n\t {{ not a template }}"
    assert template.decode(template.encode(text)) == text


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append({}) }}",
        "{{ cycler.__init__.__globals__ }}",
    ],
)
def test_a_template_cannot_leave_the_sandbox(model: Path, attack: str) -> None:
    (model / "chat_template.jinja").write_text(attack)
    with pytest.raises(InvalidModelFiles, match="rejected"):
        ChatTemplate(model).render(MESSAGES)


def test_a_template_in_the_tokenizers_settings_is_found(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    settings = {"chat_template": "{{ bos_token }}{{ messages[0].content }}", "bos_token": {"content": "<s>"}}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    assert ChatTemplate(model).render(MESSAGES) == "<s>a5 b7"


def test_missing_files_are_named(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    with pytest.raises(InvalidModelFiles, match="no chat template"):
        ChatTemplate(model)
    (model / "tokenizer.json").unlink()
    with pytest.raises(InvalidModelFiles, match=r"no tokenizer\.json"):
        ChatTemplate(model)


def test_prompts_over_the_limit_are_refused_with_their_row(model: Path) -> None:
    rows = [
        CanonicalRow(row=4, split="train", messages=MESSAGES, answer="12"),
        CanonicalRow(row=9, split="train", messages=[{"role": "user", "content": "x" * 40}], answer="1"),
    ]
    book = PromptStore(rows, ChatTemplate(model))
    book.check(RolloutSection(max_new_tokens=112), model)
    with pytest.raises(InvalidPrompts, match=r"1 prompts are over 30 tokens .* row 9 with 42"):
        book.check(RolloutSection(max_new_tokens=112, max_prompt_tokens=30), model)
    with pytest.raises(InvalidPrompts, match="context of 1024 tokens; lower it"):
        book.check(RolloutSection(max_new_tokens=1024), model)
