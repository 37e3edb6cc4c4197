"""The shapes that users send and read: agents, messages, runs, conversations, filters, JSON schemas."""
