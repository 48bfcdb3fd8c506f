"""Supervised warm start: teach the shape of an answer from demonstrations before reinforcement learning begins."""
