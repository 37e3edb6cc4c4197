"""Copies of a whole store at another server or cluster."""
