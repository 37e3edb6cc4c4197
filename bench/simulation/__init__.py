"""A fleet as a discrete simulation: what happens where a million runs are in flight, and nobody has the machines."""
