"""Processes beside those of the cluster, with an environment of their own."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.child import Child
from deploy.plan import read_procfile
from deploy.readiness import answers_ok
from deploy.stack import PROCFILE
from tests.process.cluster import Cluster


def another(cluster: Cluster, line: str, name: str, *, app: str = "workers.app", **environment: str) -> Child:
    """A process of a line of the Procfile, not started yet. A worker may have another Celery `app`."""
    like = cluster.children(line)[0]
    environment = {**like.environment, **environment}

    def ready(child: Child) -> bool:
        if line == "flower":
            return answers_ok(f"http://127.0.0.1:{environment['PALAVER_FLOWER_PORT']}/healthcheck")
        if line == "api":
            return answers_ok(f"http://127.0.0.1:{environment['PALAVER_API_PORT']}/readyz")
        return " ready." in child.output

    return Child(
        f"{line}-{name}",
        ["/bin/sh", "-c", f"exec {read_procfile(PROCFILE)[line].replace('workers.app', app)}"],
        environment=environment,
        log_path=like.log_path.with_name(f"{line}-{name}.log"),
        ready=ready,
    )


@contextmanager
def one_more(cluster: Cluster, line: str, *, name: str = "more", **how: str) -> Iterator[Child]:
    """Such a process, ready, until the end of the block."""
    child = another(cluster, line, name, **how)
    child.start()
    try:
        child.wait_until_ready(time.monotonic() + 60)
        yield child
    finally:
        child.kill(signal.SIGKILL)
