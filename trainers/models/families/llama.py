"""Llama 2 and 3: no biases; Llama 3.1 and later scale RoPE (rope_type llama3)."""

from trainers.models.families.family import Family

FAMILY = Family(
    "llama",
    tiny_config={
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    },
)
