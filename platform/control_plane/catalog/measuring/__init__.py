"""Token lengths of a dataset version under a base model's tokenizer.

A process of its own (`python -m control_plane.catalog.measuring FOLDER`), as `catalog.parsing` is one: the tokenizer
is a file of a user too, so it is loaded and used in the sandbox (`lengths`).
"""
