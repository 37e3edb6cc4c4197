"""Palaver beside others that run agents or durable work: the same work, on the same machine, in the same run."""
