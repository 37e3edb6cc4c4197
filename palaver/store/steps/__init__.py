"""Steps: claimed, settled, due, and waiting for a worker that is able."""
