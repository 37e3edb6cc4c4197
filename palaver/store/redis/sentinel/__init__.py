"""A Redis that is found by asking Sentinels (ADR 0126). Nothing of it is imported where the address names a server."""
