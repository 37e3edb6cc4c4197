"""The engine: Celery workers that claim steps, run them and settle their verdicts."""
