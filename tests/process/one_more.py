"""A process beside those of the cluster, with an environment of its own."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deploy.child import Child
from deploy.plan import read_procfile
from deploy.stack import PROCFILE
from tests.process.cluster import Cluster


def says_ready(child: Child) -> bool:
    """As a worker does."""
    return " ready." in child.output


@contextmanager
def one_more(
    cluster: Cluster,
    line: str,
    *,
    app: str = "workers.app",
    ready: Callable[[Child], bool] = says_ready,
    name: str = "more",
    **environment: str,
) -> Iterator[Child]:
    """A process of a line of the Procfile, ready, until the end of the block; a worker may have another `app`."""
    like = cluster.children(line)[0]
    child = Child(
        f"{line}-{name}",
        ["/bin/sh", "-c", f"exec {read_procfile(PROCFILE)[line].replace('workers.app', app)}"],
        environment={**like.environment, **environment},
        log_path=like.log_path.with_name(f"{line}-{name}.log"),
        ready=ready,
    )
    child.start()
    try:
        child.wait_until_ready(time.monotonic() + 30)
        yield child
    finally:
        child.kill(signal.SIGCONT)
        child.kill(signal.SIGKILL)
