"""A Celery application of somebody else, which knows of Palaver by one line. Its tasks write what they do to a file."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery, Task

import palaver.celery

app = Celery("shop", broker=os.environ["SHOP_BROKER"], backend=os.environ.get("SHOP_BACKEND"))
if not os.environ.get("SHOP_SILENT"):
    palaver.celery.report(app)


def _write(line: str) -> None:
    ledger = os.open(os.environ["SHOP_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(ledger, f"{line}\n".encode())
    os.close(ledger)


@app.task(bind=True)  # type: ignore[untyped-decorator]
def refund(self: Task, order: str, seconds: float = 0) -> dict[str, str]:  # type: ignore[type-arg,unused-ignore]
    """Pay an order back."""
    _write(f"begin {order} {self.request.id}")
    time.sleep(seconds)
    _write(f"end {order} {self.request.id}")
    return {"refunded": order}


@app.task(bind=True)  # type: ignore[untyped-decorator]
def run_ended(self: Task, event: dict[str, Any]) -> None:  # type: ignore[type-arg,unused-ignore]
    """Hear of a run's end."""
    _write(f"heard {event['type']} {event['data']['run_id']} {self.request.id}")


@app.task  # type: ignore[untyped-decorator]
def refuse(order: str) -> None:
    """Always refuse."""
    raise ValueError(f"{order} was never paid")


@app.task(bind=True, max_retries=5)  # type: ignore[untyped-decorator]
def insist(self: Task, order: str) -> int:  # type: ignore[type-arg,unused-ignore]
    """Try three times."""
    if self.request.retries < 2:
        raise self.retry(exc=OSError("the bank is busy"), countdown=0.2)
    return int(self.request.retries)


@app.task
def untyped(order):  # type: ignore[no-untyped-def]
    """Has no types."""
    return order
