"""Validate a model below a node's model root, in a separate process. Reads files, executes nothing."""
