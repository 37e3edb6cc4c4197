"""The deed as a task of a Celery application of somebody else, which reports to Palaver by one line."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import task_revoked

import palaver.celery
from tests.process import deeds

app = Celery("deeds", broker=os.environ["SHOP_BROKER"])
palaver.celery.report(app, redis=os.environ.get("SHOP_REPORTS"))


@app.task(name="deed")  # type: ignore[untyped-decorator]
def deed(do: str, key: str) -> Any:
    """Do something."""
    return deeds.deed(do, key, os.environ["SHOP_BROKER"])


@task_revoked.connect  # type: ignore[untyped-decorator]
def _note(request: Any, **_: Any) -> None:
    deeds.note(f"left {request.kwargs['key']}")
