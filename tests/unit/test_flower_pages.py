"""Flower's pages: every queue, whoever has answered it so far, and how a task ended in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from palaver.delivery.deliveries import QUEUE_NAMES
from tests.pages import ROOT

_SHOW = """
from types import SimpleNamespace
from flower.views import BaseHandler
from workers.broker.flower_pages import prepare
from workers.broker.celery_app import app
prepare()
for workers in ({}, {"tools.1": {"active_queues": [{"name": "tools"}]}}):
    print(*BaseHandler.get_active_queue_names(SimpleNamespace(application=SimpleNamespace(workers=workers), capp=app)))
"""


@pytest.mark.process
def test_every_queue_is_listed_before_all_workers_have_answered() -> None:
    """In a process of its own: Flower is changed for good."""
    done = subprocess.run(
        [sys.executable, "-c", _SHOW],
        cwd=ROOT,
        env={**os.environ, "PALAVER_REDIS_URL": "redis://127.0.0.1:1/0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert set(QUEUE_NAMES) <= set(line.split())
    assert len(done.stdout.splitlines()) == 2
