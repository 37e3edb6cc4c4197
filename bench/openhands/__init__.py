"""Palaver beside OpenHands' agent-server: the same work, on the same machine, in the same run."""
