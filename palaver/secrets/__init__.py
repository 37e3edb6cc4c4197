"""Secrets: redacted in what is shown, sealed in what is stored."""
