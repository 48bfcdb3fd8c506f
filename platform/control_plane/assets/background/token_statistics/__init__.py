"""Token lengths of a dataset version under the tokenizer of a base model.

A process of its own (`python -m control_plane.assets.background.token_statistics FOLDER`), as `dataset_ingest` is one:
the tokenizer is a user's file too, so the sandbox loads and uses it (`lengths`).
"""
