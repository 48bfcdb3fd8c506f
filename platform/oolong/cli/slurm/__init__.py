"""`oolong pool provider slurm`: GPU agents as jobs of a Slurm cluster, submitted while runs wait for slots."""
