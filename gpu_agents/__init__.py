"""Everything that runs on a GPU node outside the trainer: agent, rollouts and rewards."""
