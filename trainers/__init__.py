"""Trainer programs: `trainers.rl` (asynchronous reinforcement learning) and `trainers.sft` (supervised warm start)."""
