"""Engines: launch SGLang as a process, and call its HTTP API."""
