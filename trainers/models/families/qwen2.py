"""Qwen2 and Qwen2.5: biases on q, k and v; the smaller models tie the head to the embedding."""

from trainers.models.families.family import Family

FAMILY = Family("qwen2", tiny_config={"tie_word_embeddings": True})
