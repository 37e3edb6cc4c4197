"""Identities that an issuer vouches for: its keys, and what its tokens say. Nothing of it is imported without one."""
