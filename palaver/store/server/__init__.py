"""The Redis server itself: its state, its rights, and the needs of each role."""
