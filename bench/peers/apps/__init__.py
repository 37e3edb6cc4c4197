"""The agent as each peer's users would write it. These run in the peers' environments, which have no Palaver."""
