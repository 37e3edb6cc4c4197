"""One step, from its claim to its settlement."""
