"""The train loop of reinforcement learning: take a batch, update the policy, publish its weights, checkpoint."""
