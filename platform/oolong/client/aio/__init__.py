"""The asynchronous client. The synchronous one in `oolong.client.sync` is written from these files by
`python tests/tools/sync_client.py`: a method is added here, and there by running that.
"""
