"""Merge LoRA adapters into the model that they were trained on, tensor by tensor. Needs numpy, not torch."""
