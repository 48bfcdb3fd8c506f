"""`oolong pool provider slurm`: GPU agents as jobs of a Slurm cluster, submitted while the queue of a pool needs slots."""
