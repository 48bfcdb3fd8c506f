"""Qwen3, dense: norms on the heads of q and k, a head size of its own."""

from trainers.models.families.family import Family

FAMILY = Family("qwen3", tiny={"tie_word_embeddings": True, "head_dim": 32})
