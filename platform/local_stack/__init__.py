"""Oolong on one machine with nothing but Python: environments, embedded services, processes."""
