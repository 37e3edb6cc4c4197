"""Webhooks: what they are to hear, what was sent to each, and what is to be sent next."""
