"""Runs: submitted, controlled, copied, and many at once."""
