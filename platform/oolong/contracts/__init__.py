"""Contracts: plain data that crosses a process boundary. Standard library, pydantic and msgspec only."""
