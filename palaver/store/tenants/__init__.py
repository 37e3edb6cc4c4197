"""Tenants of an installation: their names, and the tags in their ids."""
