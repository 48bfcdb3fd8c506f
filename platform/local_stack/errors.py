"""What can go wrong on the way to a running stack, said so that the reader knows what to type."""

from __future__ import annotations


class StackError(Exception):
    """A step failed; the message says which, with the value, and what to do."""
