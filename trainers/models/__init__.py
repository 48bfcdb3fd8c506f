"""Policies as torch modules: load, shard (FSDP2), packed attention, log-probabilities, optimizer, export."""
