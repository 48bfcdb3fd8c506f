"""Fetching a model from a hub, as a process of its own on a node: HTTPS out, files in a folder, nothing executed."""
