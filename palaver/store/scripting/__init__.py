"""Lua scripts: their contracts, their assembly from parts, and the way from a reply to an error or a delivery."""
