"""OpenHands' agent-server as a dialect: what its client sends and reads, mapped to use cases and back."""
