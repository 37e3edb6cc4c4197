"""Agents that a tenant keeps on the server."""
