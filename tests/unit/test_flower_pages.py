"""Flower's pages: every queue, whoever has answered it so far, and how a task ended in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from palaver.delivery.deliveries import QUEUE_NAMES
from tests.pages import ROOT
from tests.waiting import PATIENCE

_SHOW = """
from types import SimpleNamespace
from flower.views import BaseHandler
from workers.broker.flower_pages import prepare
from workers.broker.celery_app import app
prepare()
for workers in ({}, {"tools.1": {"active_queues": [{"name": "tools"}]}}):
    print(*BaseHandler.get_active_queue_names(SimpleNamespace(application=SimpleNamespace(workers=workers), capp=app)))
"""


_TASKS = """
from types import SimpleNamespace
from celery.events.state import Task
from flower.views.tasks import TasksDataTable, visible_task_columns
from tornado.options import options
from palaver.config.roles import _COLUMNS
from workers.broker.flower_pages import prepare
prepare()
page = SimpleNamespace(application=SimpleNamespace(options=options))
print(*(label for _, label in visible_task_columns(_COLUMNS)), sep=" | ")
for ended in ({"result": "'run is completed'"}, {"exception": "rate_limited: Slow.; again in 1.0 s"}):
    task = Task("run_1:1:1", **ended)
    print(TasksDataTable.format_task(page, ("run_1:1:1", task))[1].exception)
    shown = options.format_task(task)
    print(shown.result, shown.exception)
"""


def _printed(program: str) -> list[str]:
    """What a program prints, in a process of its own: Flower is changed for good."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PALAVER_REDIS_URL": "redis://127.0.0.1:1/0"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.process
def test_every_queue_is_listed_before_all_workers_have_answered() -> None:
    lines = _printed(_SHOW)
    assert len(lines) == 2
    for line in lines:
        assert set(QUEUE_NAMES) <= set(line.split())


@pytest.mark.process
def test_the_list_of_tasks_has_kind_run_and_the_whole_reason_first() -> None:
    columns, *reasons = _printed(_TASKS)
    assert columns.startswith("Kind | Model or tool | State | Run : step : delivery | Reason | ")
    assert reasons == [
        "run is completed", "run is completed None",
        "rate_limited: Slow.; again in 1.0 s", "rate_limited: Slow.; again in 1.0 s None",
    ]  # fmt: skip
