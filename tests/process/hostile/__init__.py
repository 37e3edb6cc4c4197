"""A model server that means harm: what it answers (`kinds`), and the server that plays it byte by byte (`server`)."""
