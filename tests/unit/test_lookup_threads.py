"""Look-ups of names that never end: they hold up those of the same tenant, or of the same name."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from features.webhooks.sending import Sender
from tests.unit.receiver import receiving
from tests.waiting import aeventually
from workers.connections.lookup_threads import LookupsBusy, LookupThreads, look_ups_of


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


async def test_a_tenant_holds_up_its_own(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    """More names than there are places for all, of one tenant; a webhook of another one hears at once."""
    monkeypatch.setattr("workers.connections.lookup_threads._PATIENCE", 0.5)
    monkeypatch.setattr("workers.connections.guarded_resolver.never_asked", lambda *_, **__: False)
    async with receiving() as receiver:
        sender = Sender((f"quick.example:{receiver.port}",), timeout=30.0)
        quick = f"http://quick.example:{receiver.port}/"
        with look_ups_of("aaaaaa"):
            slow = [
                asyncio.create_task(sender.send(f"https://h{number}.slow.example/", {}, b"{}", trusted=False))
                for number in range(300)
            ]
            await aeventually(lambda: sum(names.asked.values()) == 32)
            ends = Counter([(await each).error for each in slow[32:]])
            assert ends == {"look_ups_busy": 268}
        with look_ups_of("bbbbbb"):
            assert (await sender.send(quick, {}, b"{}", trusted=False)).status == 204
        assert sum(names.asked.values()) == 32
        names.over.set()
        assert {(await each).error for each in slow[:32]} == {"unknown_host"}
        with look_ups_of("aaaaaa"):
            assert (await sender.send(quick, {}, b"{}", trusted=False)).status == 204
        await sender.close()


async def test_a_name_has_two_places_and_every_place_comes_back(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.connections.lookup_threads._PATIENCE", 0.2)
    threads = LookupThreads()
    asking = [asyncio.create_task(threads.resolve("one.slow.example")) for _ in range(3)]
    await aeventually(lambda: names.asked["one.slow.example"] == 2)
    with pytest.raises(LookupsBusy):
        await asking[2]
    left = asyncio.create_task(threads.resolve("one.slow.example"))
    await asyncio.sleep(0)
    left.cancel()
    assert await threads.resolve("other.example")
    for each in asking[:2]:
        # Who asked is gone, and the thread is not.
        each.cancel()
    with pytest.raises(LookupsBusy):
        await threads.resolve("one.slow.example")
    names.over.set()
    shares = threads._all, threads._of_tenants, threads._of_names
    await aeventually(lambda: not any(each._wanted or each._places for each in shares))
