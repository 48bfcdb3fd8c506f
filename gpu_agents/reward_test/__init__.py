"""Reward test: scores completions twice and reports whether the reward function is usable."""
