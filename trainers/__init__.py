"""Trainer programs: `trainers.rl` (asynchronous reinforcement learning), `trainers.sft` (supervised warm start) and
`trainers.dpo` (direct preference optimization)."""
