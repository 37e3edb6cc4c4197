"""Palaver's own dialect."""
