"""Import of a model from a Hugging Face hub, as a separate process on a node. Downloads files, executes nothing."""
