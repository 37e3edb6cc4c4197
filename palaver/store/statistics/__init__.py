"""Schedules, and their ticks: each is carried out once."""
