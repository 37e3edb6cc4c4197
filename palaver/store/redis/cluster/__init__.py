"""A store that is spread over the masters of a Redis Cluster. Imported where an address names one, and nowhere else."""
