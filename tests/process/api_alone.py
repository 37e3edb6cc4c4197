"""One API process on a Redis of its own, with as many file descriptors as a test says, and a good client beside it."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import httpx

from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from features.stack.readiness import answers_ok
from features.stack.redis_server import RedisServer
from tests.waiting import eventually

_READY_WITHIN: Final = 30.0


@dataclass(frozen=True)
class ApiAlone:
    """A running one."""

    child: ChildCommand
    port: int
    redis_url: str

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}"

    @property
    def memory(self) -> int:
        """Bytes that it has in memory."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024

    @property
    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(list(Path(f"/proc/{self.child.pid}/fd").iterdir()))


@contextmanager
def api_alone(files: int, **environment: str) -> Iterator[ApiAlone]:
    """`files` are its file descriptors; what else is named goes into its environment."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="palaver-api-") as folder, RedisServer() as redis:
        child = ChildCommand(
            "api",
            ("/bin/sh", "-c", f"ulimit -n {files}; exec {sys.executable} -m api --port {port}"),
            environment={**os.environ, "PALAVER_REDIS_URL": redis.url, **environment},
            log_path=Path(folder) / "api.log",
            ready=lambda _: answers_ok(f"http://{HOST}:{port}/readyz"),
        )
        child.start()
        try:
            child.wait_until_ready(time.monotonic() + _READY_WITHIN)
            yield ApiAlone(child, port, redis.url)
        except BaseException as error:
            error.add_note(child.output[-3000:])
            raise
        finally:
            child.terminate()
            child.reap(time.monotonic() + 5)


class Beside:
    """A well-behaved client that asks on a new connection each time, for as long as a test goes on."""

    def __init__(self, url: str) -> None:
        self.answers: Counter[str] = Counter()
        """How often it had which answer: a status, with `!` if it is a refusal that does not say when to come again."""
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    def _ask(self) -> None:
        while not self._over.wait(0.02):
            with httpx.Client(base_url=self._url, timeout=10, trust_env=False) as http:
                try:
                    answer = http.get("/readyz")
                except httpx.TransportError as error:
                    self.answers[type(error).__name__] += 1
                    continue
            told = answer.status_code == 200 or "retry-after" in answer.headers
            self.answers[f"{answer.status_code}{'' if told else '!'}"] += 1

    def is_served(self, times: int = 5) -> None:
        """From now on it is answered so often."""
        before = self.answers["200"]
        eventually(lambda: self.answers["200"] >= before + times)
