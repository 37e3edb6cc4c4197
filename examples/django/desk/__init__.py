"""A support desk whose people have an assistant. Its application of Celery is that of the whole project."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "desk.settings")
celery = Celery("desk", broker=os.environ.get("DESK_BROKER_URL", "redis://127.0.0.1:6379/1"))
celery.autodiscover_tasks()  # Also those of Palaver, which hear of its events.
