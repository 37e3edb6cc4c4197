"""Look-ups of names that never end: they take places, and no more than there are."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from features.webhooks.sending import Sender
from tests.waiting import aeventually
from workers.connections.lookup_threads import LookupsBusy, LookupThreads


class Names:
    """A server of names that answers nobody who asks for ``*.slow.example``, until it is over."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.asked: Counter[str] = Counter()
        self._known = socket.getaddrinfo

    def getaddrinfo(self, host: Any, *rest: Any, **options: Any) -> Any:
        """As that of ``socket``."""
        if str(host).endswith(".slow.example"):
            self.asked[host] += 1
            self.over.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return self._known("127.0.0.1" if str(host).endswith(".example") else host, *rest, **options)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    made.over.set()


async def test_names_that_nobody_answers_take_so_many_places_and_each_comes_back(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.connections.lookup_threads._PATIENCE", 0.2)
    threads = LookupThreads(3)
    asking = [asyncio.create_task(threads.resolve(f"{name}.slow.example")) for name in ("a", "b")]
    await aeventually(lambda: sum(names.asked.values()) == 2)
    assert await threads.resolve("other.example"), "one place is left"
    asking.append(asyncio.create_task(threads.resolve("c.slow.example")))
    await aeventually(lambda: sum(names.asked.values()) == 3)
    with pytest.raises(LookupsBusy):
        await threads.resolve("other.example")
    left = asyncio.create_task(threads.resolve("other.example"))
    await asyncio.sleep(0)
    left.cancel()
    for each in asking:
        # Who asked is gone, and the thread is not.
        each.cancel()
    with pytest.raises(LookupsBusy):
        await threads.resolve("other.example")
    names.over.set()
    await aeventually(lambda: threads._places._value == 3)
    assert await threads.resolve("other.example")


async def test_an_attempt_without_a_place_says_so(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.connections.lookup_threads._PATIENCE", 0.2)
    monkeypatch.setattr("workers.connections.guarded_resolver.never_asked", lambda *_, **__: False)
    sender = Sender((), timeout=30.0)
    urls = [f"https://h{number}.slow.example/" for number in range(300)]
    slow = [asyncio.create_task(sender.send(url, {}, b"{}", trusted=False)) for url in urls]
    await aeventually(lambda: sum(names.asked.values()) == 256)
    assert {(await each).error for each in slow[256:]} == {"look_ups_busy"}
    names.over.set()
    assert {(await each).error for each in slow[:256]} == {"unknown_host"}
    await sender.close()
