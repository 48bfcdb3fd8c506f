"""Turn an uploaded file into rows, isolated from everything else.

A validation is a process of its own (`python -m control_plane.assets.background.dataset_ingest FOLDER`) without any
credential in its environment; the control plane starts it, watches it and may kill it. It decodes the file in the
sandbox (`decode`) and maps the decoded rows to canonical ones (`assets.datasets.rows`). It needs no Django settings.
"""
