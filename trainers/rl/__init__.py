"""The RL trainer: take a batch, update the policy, publish its weights, checkpoint."""
