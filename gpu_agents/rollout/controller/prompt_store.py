"""All prompts of a run, rendered and tokenized once at the start, so that a bad one fails before generation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.controller.prompt_order import PromptSource, one_source
from oolong.contracts.attempt import CanonicalRow
from oolong.contracts.rollout import EvaluationPrompt
from oolong.contracts.run_spec import RolloutSection


class InvalidPrompts(ValueError):
    """The rows do not fit the spec's limits or the model; the message names the field and the row."""


class PromptStore:
    def __init__(
        self, rows: list[CanonicalRow], template: ChatTemplate, *, tools: Sequence[dict[str, Any]] = ()
    ) -> None:
        """`tools` are the workflow's. Raises InvalidPrompts if the chat template does not render them."""
        texts = [template.render(row.messages, tools=tools) for row in rows]
        if tools and texts and texts[0] == template.render(rows[0].messages):
            raise InvalidPrompts(
                "workflow.tool_format=tool_call: the model's chat template does not render tools, so the policy cannot "
                "know how to call one; explain the tool in the dataset's messages and use tool_format: fenced"
            )
        token_ids = template.encode_many(texts)
        self._prompts = {
            row.row: EvaluationPrompt(
                index=row.row, prompt_token_ids=ids, prompt=text, answer=row.answer, source=row.source
            )
            for row, ids, text in zip(rows, token_ids, texts, strict=True)
        }

    @property
    def rows(self) -> list[int]:
        return list(self._prompts)

    def by_source(self, weights: Mapping[str, float]) -> dict[str, PromptSource]:
        """The rows of each source with a positive weight; all rows together where nothing is weighted.

        Raises InvalidPrompts for a weighted source without rows.
        """
        if not weights:
            return one_source(self.rows)
        rows: dict[str, list[int]] = {name: [] for name, weight in weights.items() if weight > 0}
        for row, prompt in self._prompts.items():
            if prompt.source in rows:
                rows[prompt.source].append(row)
        if missing := [name for name in rows if not rows[name]]:
            raise InvalidPrompts(
                f"dataset.weights names {missing[0]!r}, but no row of the split has this source"
            )
        return {name: PromptSource(rows[name], weights[name]) for name in rows}

    def get(self, row: int) -> EvaluationPrompt:
        return self._prompts[row]

    def first(self, count: int) -> list[EvaluationPrompt]:
        return list(self._prompts.values())[:count]

    def check(self, rollout: RolloutSection, model_directory: str | Path) -> None:
        """Raise InvalidPrompts if a prompt exceeds a limit of the spec or the model."""
        context = _context_length(Path(model_directory))
        if rollout.max_new_tokens >= context:
            raise InvalidPrompts(
                f"max_new_tokens={rollout.max_new_tokens} does not fit the model's context of {context} "
                "tokens; lower it, so that a prompt fits beside a completion"
            )
        limit = min(rollout.max_prompt_tokens, context - rollout.max_new_tokens)
        over = [
            (len(p.prompt_token_ids), p.index)
            for p in self._prompts.values()
            if len(p.prompt_token_ids) > limit
        ]
        if over:
            tokens, row = max(over)
            raise InvalidPrompts(
                f"{len(over)} prompts are over {limit} tokens (rollout.max_prompt_tokens="
                f"{rollout.max_prompt_tokens}, max_new_tokens={rollout.max_new_tokens}, model context {context}); "
                f"the longest is row {row} with {tokens}. Raise the limit or shorten the rows"
            )


def _context_length(model_directory: Path) -> int:
    config = json.loads((model_directory / "config.json").read_text())
    return int(config.get("text_config", config)["max_position_embeddings"])
