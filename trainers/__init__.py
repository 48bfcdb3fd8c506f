"""Programs that update weights: the asynchronous RL train loop and the supervised warm start."""
