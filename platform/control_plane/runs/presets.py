"""Starting points for the form and the command line. Each spec lacks only its model and dataset."""

from __future__ import annotations

from typing import Any

PRESETS: list[dict[str, Any]] = [
    {
        "name": "letter-sum-sft",
        "title": "Letter sum: warm start",
        "description": "Teaches a tiny model to add digits from noisy demonstrations; about a minute on one core.",
        "spec": {
            "kind": "sft",
            "name": "letter-sum warm start",
            "model": {"base_model": "letter-sum-tiny"},
            "dataset": {"version": "letter-sum@latest", "split": "sft"},
            "sft": {
                "steps": 2000, "batch_size": 16, "learning_rate": 5e-3, "validation_split": "validation",
                "validate_from_step": 800,
            },
        },
    },
    {
        "name": "letter-sum-rl",
        "title": "Letter sum: asynchronous RL",
        "description": "Goes on from a letter-sum warm start at max staleness 4; minutes on two cores.",
        "spec": {
            "kind": "rl",
            "name": "letter-sum asynchronous RL",
            "model": {"checkpoint": ""},
            "dataset": {"version": "letter-sum@latest", "split": "train"},
            "reward": {"name": "exact_match", "options": {"extract": "boxed_at_end"}},
            "rollout": {"engines": 1, "group_size": 8, "max_new_tokens": 112},
            "staleness": {"max": 4},
            "trainer": {"total_train_steps": 60, "groups_per_step": 32, "minibatches": 4, "learning_rate": 2e-4},
            "weight_sync": {"probe_first_versions": 60},
            "evaluation": {"split": "eval", "prompts": 256},
        },
    },
    {
        "name": "grpo",
        "title": "RL with group-normalised advantages",
        "description": "Decoupled PPO with GRPO advantages on verifiable answers; a first choice for maths on GPUs.",
        "spec": {
            "kind": "rl",
            "name": "grpo",
            "model": {"base_model": ""},
            "dataset": {"version": "", "split": "train"},
            "reward": {"name": "math"},
            "rollout": {
                "engines": 1, "group_size": 8, "max_concurrent_groups": 128, "max_new_tokens": 1024,
                "max_prompt_tokens": 1024, "engine_max_total_tokens": 131072,
            },
            "staleness": {"max": 4},
            "trainer": {
                "total_train_steps": 200, "groups_per_step": 64, "minibatches": 4, "learning_rate": 1e-6,
                "warmup_steps": 10, "microbatch_tokens": 16384, "dtype": "bfloat16",
            },
        },
    },
    {
        "name": "sft",
        "title": "Supervised fine-tuning",
        "description": "Trains on the completion column of a dataset.",
        "spec": {
            "kind": "sft",
            "name": "sft",
            "model": {"base_model": ""},
            "dataset": {"version": "", "split": "train"},
            "trainer": {"microbatch_tokens": 16384, "dtype": "bfloat16"},
            "sft": {
                "steps": 1000, "batch_size": 32, "learning_rate": 1e-5, "validation_split": None,
                "stop_at_greedy_accuracy": None, "required_greedy_accuracy": None,
            },
        },
    },
]  # fmt: skip
