"""Direct preference optimization (arXiv 2305.18290): learn from pairs of completions, without a reward model."""
