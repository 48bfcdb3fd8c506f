"""Render chat messages into prompt token ids from the files of a Hugging Face directory, without transformers.

The template runs in jinja2's immutable sandbox, as in `oolong.model_validation` when the model was registered. A test
in the node lane compares the result with transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from tokenizers import Tokenizer

from oolong.model_validation import chat_template

_PLACEHOLDER = "assistant-turn-placeholder"


class InvalidModelFiles(ValueError):
    """A file of the model directory is missing or cannot be read; the message names it."""


class ChatTemplate:
    """The tokenizer and chat template of a model directory."""

    def __init__(self, model_directory: str | Path) -> None:
        directory = Path(model_directory)
        tokenizer_file = directory / "tokenizer.json"
        if not tokenizer_file.is_file():
            raise InvalidModelFiles(f"{directory} has no tokenizer.json; add the model's fast tokenizer")
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file))
        settings = _read_json(directory / "tokenizer_config.json")
        source = _source(directory, settings)
        self._special = source.special
        self._special_texts = [
            token.content for token in self.tokenizer.get_added_tokens_decoder().values() if token.special
        ]
        self._template = chat_template.environment().from_string(source.text)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        plain: bool = False,
    ) -> str:
        """Render the prompt up to the start of the assistant's turn; `tools` in the template's format.

        `plain`: the contents are untrusted, so their special tokens are escaped.
        """
        if plain:
            messages = self._plain(messages)
        try:
            return str(
                self._template.render(
                    messages=messages, tools=list(tools) or None, add_generation_prompt=True, **self._special
                )
            )
        except jinja2.TemplateError as error:
            raise InvalidModelFiles(
                f"the chat template rejected the messages {messages!r}: {error}"
            ) from error

    def continuation(self, messages: Sequence[Mapping[str, Any]], *, stop_token: int | None) -> list[int]:
        """Token ids that follow an assistant's turn: `messages`, up to the start of the next assistant turn.

        The template renders a conversation with a placeholder for the turn, and only the text after the placeholder is
        tokenized, so the sampled tokens stay as they are. `stop_token` is the token that ended the turn, which the
        template would write again; None for a truncated turn.
        """
        before = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _PLACEHOLDER}]
        _before, found, after = self.render([*before, *self._plain(messages)]).partition(_PLACEHOLDER)
        if not found:
            raise InvalidModelFiles(
                "the chat template leaves out earlier assistant turns, so it cannot continue a conversation of "
                "several turns; use workflow single_turn"
            )
        if stop_token is not None:
            after = after.removeprefix(self.decode([stop_token], skip_special_tokens=False))
        return self.encode(after)

    def _plain(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [
            {**message, "content": self._without_special_tokens(message["content"])} for message in messages
        ]

    def _without_special_tokens(self, text: str) -> str:
        """Break up special tokens in untrusted text with a space, so that it cannot end or begin a turn."""
        for special in self._special_texts:
            text = text.replace(special, f"{special[0]} {special[1:]}")
        return text

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        return [list(e.ids) for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = True) -> str:
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens))


def _source(directory: Path, settings: Mapping[str, Any]) -> chat_template.TemplateSource:
    files = {path.name: path for path in directory.iterdir() if path.is_file()}
    found = chat_template.find_template(files, settings)
    if found is None:
        raise InvalidModelFiles(
            f"{directory} has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json"
        )
    return found


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise InvalidModelFiles(f"{path.name} is not JSON: {error}") from error
    return content
