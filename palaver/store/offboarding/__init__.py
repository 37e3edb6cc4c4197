"""Tenants that leave: all that one has, as lines of JSON, and gone."""
