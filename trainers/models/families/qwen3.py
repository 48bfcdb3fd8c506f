"""Qwen3, dense: RMS norms on the q and k heads, explicit head_dim."""

from trainers.models.families.family import Family

FAMILY = Family("qwen3", tiny_config={"tie_word_embeddings": True, "head_dim": 32})
