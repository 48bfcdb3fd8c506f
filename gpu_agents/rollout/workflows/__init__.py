"""Workflows: the code that turns a prompt into a trajectory. One file each, and one line each in `registry`."""
