"""A listening socket that is handed over, as systemd does it: none is refused while the API is started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

import pytest

from features.stack.child import dying_with_parent
from features.stack.ports import HOST
from features.stack.redis_server import RedisServer
from tests.pages import ROOT
from tests.waiting import eventually

pytestmark = pytest.mark.process

RESTARTS: Final = 3
CLIENTS: Final = 4
POST: Final = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY: Final = b'{"agent": {"model": "open/small"}, "input": "hello"}'
AS_SYSTEMD: Final = """
import os, sys
given, *command = sys.argv[1:]
os.dup2(int(given), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(command[0], command)
"""


class Api:
    """`palaver api` behind a socket that this process keeps."""

    def __init__(self, listener: socket.socket, folder: Path, redis_url: str) -> None:
        self.port = listener.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}"
        self._listener = listener
        self._log = folder / "api.log"
        self._environment = {**os.environ, "PALAVER_REDIS_URL": redis_url}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def said(self) -> str:
        """What it has written, over all starts."""
        return self._log.read_text(errors="replace")

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, and wait for nothing."""
        given = self._listener.fileno()
        command = [sys.executable, "-c", AS_SYSTEMD, str(given), sys.executable, "-m", "palaver.cli", "api"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(command),
                cwd=ROOT,
                env=self._environment,
                pass_fds=[given],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self._process

    def tell(self) -> None:
        """Tell it to end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        self._process.wait(60)

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def behind(listener: socket.socket, folder: Path) -> Iterator[Api]:
    with listener, RedisServer() as redis:
        api = Api(listener, folder, redis.url)
        try:
            yield api
        except BaseException as error:
            error.add_note(api.said[-3000:])
            raise
        finally:
            api.kill()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with behind(socket.create_server((HOST, 0), backlog=512), tmp_path) as api:
        yield api


class Visitors:
    """Clients, each of which asks on a new connection as soon as it has its answer."""

    def __init__(self, url: str) -> None:
        self.answers: Counter[str] = Counter()
        """How often they had which answer, or which error."""
        self._place = url.removeprefix("http://")
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(CLIENTS)]

    def __enter__(self) -> Visitors:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self) -> None:
        while not self._over.is_set():
            connection = HTTPConnection(self._place, timeout=60)
            try:
                connection.request("GET", "/healthz")
                said = str(connection.getresponse().status)
            except (OSError, HTTPException) as error:
                said = repr(error)
            finally:
                connection.close()
            with self._lock:
                self.answers[said] += 1

    def are_served(self, times: int) -> None:
        """From now on they have so many answers."""
        before = self.answers["200"]
        eventually(lambda: self.answers["200"] >= before + times)


@pytest.mark.slow
def test_no_connection_is_refused_while_the_api_is_started_again_and_again(api: Api) -> None:
    api.start()
    with Visitors(api.url) as visitors:
        for _ in range(RESTARTS):
            visitors.are_served(50)
            api.tell()
            api.ended()
            api.start()
        visitors.are_served(50)
    assert set(visitors.answers) == {"200"}, visitors.answers
    assert api.said.count("Handed over: 127.0.0.1 port") == RESTARTS + 1


def test_what_is_under_way_is_finished_by_the_old_one_and_what_comes_waits_for_the_new_one(api: Api) -> None:
    api.start()
    with socket.create_connection((HOST, api.port), timeout=60) as under_way:
        under_way.sendall(POST + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(BODY))
        assert under_way.recv(100).startswith(b"HTTP/1.1 100 ")
        api.tell()
        eventually(lambda: "Shutting down" in api.said)
        with closing(HTTPConnection(HOST, api.port, timeout=60)) as later:
            later.request("GET", "/readyz")
            under_way.sendall(BODY)
            assert under_way.recv(100).startswith(b"HTTP/1.1 422 "), "no provider has the model"
            api.ended()
            api.start()
            assert later.getresponse().status == 200


def test_a_socket_that_others_reach_is_not_served_without_keys(tmp_path: Path) -> None:
    with behind(socket.create_server(("0.0.0.0", 0)), tmp_path) as api:
        assert api.start().wait(60) == 78
        assert "ListenStream: 0.0.0.0 is reached from elsewhere" in api.said
