"""Characters of tokens: they cut a completion into the texts of its tokens."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from gpu_agents.rollout.token_characters import TokenCharacters


def byte_level() -> Tokenizer:
    """One token per byte, and "ab" of two."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: n for n, character in enumerate(alphabet)} | {"ab": 256}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return tokenizer


def cut(tokenizer: Tokenizer, text: str) -> list[str]:
    token_ids = tokenizer.encode(text).ids
    decoded = tokenizer.decode(token_ids, skip_special_tokens=False)
    texts, position = [], 0
    for count in TokenCharacters(tokenizer).count(token_ids, decoded):
        texts.append(decoded[position : position + count])
        position += count
    assert position == len(decoded)
    return texts


def test_tokens_cut_the_text_where_they_begin() -> None:
    assert cut(byte_level(), "ab c<|end|>") == ["ab", " ", "c", "<|end|>"]


def test_a_character_of_several_tokens_belongs_to_the_first() -> None:
    assert cut(byte_level(), "é🙂x") == ["é", "", "🙂", "", "", "", "x"]


def test_counts_that_do_not_add_up_to_the_text_are_left_out() -> None:
    tokenizer = byte_level()
    token_ids = tokenizer.encode("🙂").ids[:2]  # half of a character decodes to one replacement, or to two
    assert TokenCharacters(tokenizer).count(token_ids, "ab") == []
    # A tokenizer that joins its words with spaces: alone, a word has none.
    words = Tokenizer(models.WordLevel({"one": 0, "two": 1}, unk_token="one"))
    assert TokenCharacters(words).count([0, 1], words.decode([0, 1])) == []
