"""Readers of foreign wires, which read what can be read: event streams, and JSON that is not quite JSON."""
