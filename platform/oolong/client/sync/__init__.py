"""The synchronous client, written from `oolong.client.aio` by `python tests/tools/sync_client.py`."""
