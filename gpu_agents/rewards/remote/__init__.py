"""Rewards that a service elsewhere gives: `http` and `judge`."""
