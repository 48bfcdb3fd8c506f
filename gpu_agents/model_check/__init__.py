"""Looking at a model below a directory that the node offers, as a process of its own: files read, nothing executed."""
