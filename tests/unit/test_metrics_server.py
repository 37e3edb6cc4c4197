"""``GET /metrics`` of a worker, while others ask for it a byte at a time."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from socket import create_connection, socket
from urllib.request import urlopen

import pytest

from workers.loops import metrics_server
from workers.loops.metrics_server import MetricsServer

EXPOSED = "up 1\n"


def test_who_asks_a_byte_at_a_time_keeps_nobody_from_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "_PATIENCE", 1.0)
    server, over = MetricsServer("127.0.0.1", 0, lambda: EXPOSED), threading.Event()
    with ExitStack() as stack:
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        for _ in range(metrics_server._AT_ONCE + 1):
            slow = stack.enter_context(create_connection(("127.0.0.1", server.server_port)))

            def drip(slow: socket = slow) -> None:
                with suppress(OSError):
                    while not over.wait(0.05):
                        slow.send(b"G")

            dripping = threading.Thread(target=drip)
            dripping.start()
            stack.callback(dripping.join)
            stack.callback(over.set)
        with urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer:
            assert answer.read().decode() == EXPOSED
