"""Deliveries: their message for Celery, and the way to the broker."""
