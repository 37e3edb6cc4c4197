"""Processes beside those of the cluster, with an environment of their own."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from features.stack.child import ChildCommand
from features.stack.plan import COMMANDS
from features.stack.readiness import answers_ok
from palaver.config.roles import command
from tests.process.cluster import Cluster


def of_app(role: str, app: str) -> list[str]:
    """The program of a role with another Celery app."""
    return [word.replace("workers.app", app) for word in command(role)]


def another(
    cluster: Cluster, line: str, name: str, *, app: str | None = None, options: Sequence[str] = (), **environment: str
) -> ChildCommand:
    """A process of a role, with more `options`, not started yet. A worker may have another Celery `app`."""
    # What the cluster has none of has the environment of any other.
    there = cluster.children(line)
    like = (there or cluster.children("api"))[0]
    environment = {**like.environment, **environment}

    def ready(child: ChildCommand) -> bool:
        if line == "flower":
            return answers_ok(f"http://127.0.0.1:{environment['PALAVER_FLOWER_PORT']}/healthcheck")
        if line == "api":
            return answers_ok(f"http://127.0.0.1:{environment['PALAVER_API_PORT']}/readyz")
        return " ready." in child.output

    return ChildCommand(
        f"{line}-{name}",
        [*(there[0]._command if there else COMMANDS[line]), *options]
        if app is None
        else [*of_app(line, app), "-n", f"{name}@%h", *options],
        environment=environment,
        log_path=like.log_path.with_name(f"{line}-{name}.log"),
        ready=ready,
    )


@contextmanager
def one_more(cluster: Cluster, line: str, *, name: str = "more", **how: Any) -> Iterator[ChildCommand]:
    """Such a process, ready, until the end of the block."""
    child = another(cluster, line, name, **how)
    child.start()
    try:
        child.wait_until_ready(time.monotonic() + 60)
        yield child
    finally:
        child.kill(signal.SIGKILL)
