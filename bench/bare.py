"""A Celery application with one task that does nothing: what any worker of Celery costs."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("bare")
app.conf.update(broker_url=os.environ["BENCH_BROKER_URL"], broker_connection_retry_on_startup=True)


@app.task(name="bare.nothing")  # type: ignore[untyped-decorator]
def nothing() -> None:
    """Does nothing."""
