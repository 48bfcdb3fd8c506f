"""The reward service: scores one completion per call. One file per reward function, one line each in `registry`."""
