"""From an uploaded file to rows, away from everything else.

A validation is a process of its own (`python -m control_plane.catalog.parsing FOLDER`) with no credential in its
environment, which the control plane starts, watches and may kill. It has the file decoded in the sandbox
(`decode`), and maps the decoded rows to canonical ones (`catalog.rows`). Nothing here needs Django's settings.
"""
