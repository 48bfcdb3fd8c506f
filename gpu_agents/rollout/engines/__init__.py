"""Engines: launch of SGLang as a process, and a client of its HTTP contract (research/sglang.md)."""
