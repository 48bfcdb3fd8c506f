"""Small inputs that show a whole run without a GPU or a network: a dataset, a base model, a reward. No torch."""
