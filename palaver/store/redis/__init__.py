"""Connections to Redis, its keys, and the room that is left in it."""
