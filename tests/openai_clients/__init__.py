"""Versions of OpenAI's client for Python, and what each of them does at an API."""
