"""Where each token stands in the text of its completion, so that a reader can color the text token by token."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

_REPLACEMENT = "\ufffd"  # what a tokenizer decodes a part of a character to


def _byte_alphabet() -> dict[str, int]:
    """The bytes by the characters that stand for them in the vocabulary of a byte-level BPE, as in GPT-2."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_alphabet()


class TokenCharacters:
    """Counts the characters of tokens. The counts are cached: the vocabulary is finite, and samples are many."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._counts: dict[int, int] = {}

    def count(self, token_ids: Sequence[int], text: str) -> list[int]:
        """[T]: the characters of `text` that each token begins; they add up to the text.

        Empty if they do not add up, as with a tokenizer whose tokens have other texts alone than in a sequence.
        """
        counts = [self._count(token_id) for token_id in token_ids]
        return counts if sum(counts) == len(text) else []

    def _count(self, token_id: int) -> int:
        if token_id not in self._counts:
            self._counts[token_id] = self._characters(token_id)
        return self._counts[token_id]

    def _characters(self, token_id: int) -> int:
        text = self._tokenizer.decode([token_id], skip_special_tokens=False)
        if _REPLACEMENT not in text:
            return len(text)
        # The token holds a part of a character: the character counts for the token with its first byte.
        vocabulary = self._tokenizer.id_to_token(token_id) or ""
        return sum(_BYTES.get(character, 0) & 0xC0 != 0x80 for character in vocabulary)
