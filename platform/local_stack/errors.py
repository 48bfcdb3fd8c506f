"""Errors of the local stack."""

from __future__ import annotations


class StackError(Exception):
    """A step failed. The message names the step, the value and the fix."""
