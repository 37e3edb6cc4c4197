"""Schedules: kept by name, and carried out by whichever model worker is there (ADR 0119)."""
