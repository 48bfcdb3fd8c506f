"""Workflows: the code that turns a prompt into a trajectory. One file each, one line each in `table`."""
