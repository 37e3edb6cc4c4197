"""A store that is copied to another server or cluster (ADR 0131)."""
