"""The inside of Celery and kombu that Palaver replaces: transport, pool, consumer, events, logs."""
