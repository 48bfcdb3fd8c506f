"""Performance of a run before it starts: a simulation of gate, engines, buffer and trainer with known service times."""
