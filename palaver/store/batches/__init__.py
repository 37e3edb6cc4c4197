"""Batches: many runs of the same agents, and what came of them."""
