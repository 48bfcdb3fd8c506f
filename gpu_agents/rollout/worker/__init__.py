"""The rollout worker: drives one engine, generates claimed groups, scores them, and loads new weights."""
