"""Conversations and their secrets."""
