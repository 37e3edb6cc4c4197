"""Schedules: kept by name, and carried out by whichever API process is there (ADR 0119)."""
