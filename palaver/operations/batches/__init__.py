"""Batches: many runs over a list of inputs, begun behind a window (ADR 0120)."""
