"""The asynchronous client. `local_stack.sync_client` generates the synchronous `oolong.client.sync` from it."""
