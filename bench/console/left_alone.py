"""What 50 consoles cost an API that nobody does anything with: what one asks for is recorded, and asked for 50 times.

A browser opens each page and leaves it alone for half an hour of the page's own clock (`clock.js`). What it asked for
in the last ten minutes of it, at which times, is then asked for by 50 clients of one process, with a stream each where
the page has one: 50 browsers would not fit on the machine that measures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from bench.asked import BenchError
from bench.console.tabs import MAIN, Tab, chromium, tab_at
from bench.report import Table
from bench.rig import Rig
from bench.usage import Usage
from features.stack.ports import HOST
from palaver.schemas.actions import Approvals

CLOCK: Final = Path(__file__).with_name("clock.js").read_text()
_CONSOLES: Final = 50
_ALONE: Final = 1800
"""Seconds of the page's clock after which it asks as seldom as it ever does."""
_RECORDED: Final = 600
_WITHIN: Final = 30.0
_HEADERS: Final = (
    "Accept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\nCache-Control: no-cache\r\n"
    "Pragma: no-cache\r\nConnection: keep-alive\r\nSec-Fetch-Dest: empty\r\nSec-Fetch-Mode: cors\r\n"
    "Sec-Fetch-Site: same-origin\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome Safari\r\n"
)
"""What Chromium sends with each request of the console."""


class Habit(NamedTuple):
    """What a page that is left alone asks for: its streams, and requests at their seconds of the time recorded."""

    streams: Sequence[str]
    requests: Sequence[tuple[float, str]]


async def measure(seconds: int) -> list[Table]:
    """Have so many seconds of each page 50 times. Raises BenchError."""
    table = Table(
        f"{_CONSOLES} consoles left alone for {seconds} s",
        ("page", "streams", "requests a minute and page", "KB a minute and page", "API CPU, % of a core"),
        note="As one page asks after half an hour in which nothing happened, recorded in Chromium, by 50 clients of "
        "one process with the browser's headers, each beginning at another moment. The store has 1,000 runs; the first "
        "row is the same API with nobody there.",
    )
    async with Rig() as rig:
        url, api = await rig.start_api(PALAVER_CONSOLE="true", PALAVER_DIALECTS="native")
        await rig.workers_ready(rig.start_worker(50))
        runs = [await rig.submit("echo") for _ in range(1000)]
        await rig.ended(runs)
        asks = await _that_waits(rig)
        conversation = (await rig.store.runs.get(asks)).conversation_id
        places = {
            "runs": "runs",
            "a run that waits": f"runs/{asks}",
            "a run that has ended": f"runs/{runs[-1]}",
            "a conversation": f"conversations/{conversation}",
            "actions": "actions",
            "queues and workers": "fleet",
        }
        with chromium(rig.folder / "chromium") as address:
            habits = {name: await asyncio.to_thread(_recorded, address, url, place) for name, place in places.items()}
        before = Usage.of(api.pid).cpu
        await asyncio.sleep(seconds)
        table.rows.append(("nobody", "0", "0", "0", f"{100 * (Usage.of(api.pid).cpu - before) / seconds:.2f}"))
        for name, habit in habits.items():
            table.rows.append((name, *await _cost(url, api.pid, habit, seconds)))
    return [table]


async def _that_waits(rig: Rig) -> str:
    """A run that waits for an approval."""
    run = await rig.submit("tool-1", tools=("calculator",), approvals=Approvals(require="always", timeout=86_400))
    give_up_at = time.monotonic() + _WITHIN
    while not (await rig.store.runs.get(run)).pending_actions:
        if time.monotonic() > give_up_at:
            raise BenchError("the run does not ask")
        await asyncio.sleep(0.05)
    return run


def _recorded(address: str, url: str, place: str) -> Habit:
    with tab_at(address, url, CLOCK) as tab:
        arrive(tab, place)
        pass_by(tab, _ALONE)
        asked = tab.page.evaluate(f"window.asked({_RECORDED * 1000})")
        streams = [_path(each) for each in tab.page.evaluate("window.streams()")]
        tab.sound()
    requests = [(each["at"] / 1000, _path(each["address"])) for each in asked if "stream" not in each["accept"]]
    return Habit(streams, requests)


def _path(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def arrive(tab: Tab, place: str) -> None:
    """Open a page with a clock of its own, until it shows something."""
    tab.go(place)
    tab.page.until(f"pass(100, 1000).then(() => {MAIN}?.querySelector('h1') && !{MAIN}.innerText.includes('Loading'))")


def pass_by(tab: Tab, seconds: float) -> None:
    """Have so many seconds of the page's own clock pass."""
    left = seconds * 1000
    while left > 0:
        left = tab.page.evaluate(f"pass({left}, 10_000)")


async def _cost(url: str, api: int, habit: Habit, seconds: int) -> tuple[str, ...]:
    clients = [_Client(urlsplit(url).port or 80) for _ in range(_CONSOLES)]
    loop = asyncio.get_running_loop()
    streaming = [loop.create_task(client.follow(path)) for client in clients for path in habit.streams]
    await asyncio.sleep(2)
    before, began = Usage.of(api).cpu, time.monotonic()
    asking = [
        loop.create_task(client.ask(habit.requests, place * _RECORDED / _CONSOLES, seconds))
        for place, client in enumerate(clients)
    ]
    await asyncio.gather(*asking)
    await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
    spent = 100 * (Usage.of(api).cpu - before) / (time.monotonic() - began)
    lost = sum(task.done() for task in streaming)
    for client in clients:
        client.close()
    await asyncio.gather(*streaming, return_exceptions=True)
    if lost:
        raise BenchError(f"{lost} streams have ended")
    asked, came = (sum(getattr(client, name) for client in clients) for name in ("asked", "bytes"))
    minutes = _CONSOLES * seconds / 60
    return (f"{len(habit.streams)}", f"{asked / minutes:.1f}", f"{came / 1e3 / minutes:.0f}", f"{spent:.2f}")


class _Client:
    """One page that is open: a connection for its requests, and one for each of its streams."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[asyncio.StreamWriter] = []
        self.asked = 0
        self.bytes = 0

    async def follow(self, path: str) -> None:
        """Follow a stream, until it ends."""
        reader, _ = await self._send(path, "text/event-stream")
        while piece := await reader.read(65_536):
            self.bytes += len(piece)

    async def ask(self, requests: Sequence[tuple[float, str]], begin: float, seconds: float) -> None:
        """Ask for what the recording has from ``begin`` on, each at its time, for so many seconds."""
        due = sorted(((at - begin) % _RECORDED, path) for at, path in requests)
        now = time.monotonic()
        connection = None
        for at, path in due:
            if at >= seconds:
                break
            await asyncio.sleep(max(0.0, now + at - time.monotonic()))
            connection = await self._send(path, "application/json", connection)
            head = (await connection[0].readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"http/1.1 2"):
                raise BenchError(f"{path}: {head.decode()[:200]}")
            length = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
            self.bytes += len(head) + len(await connection[0].readexactly(length))
            self.asked += 1

    async def _send(
        self, path: str, kind: str, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if connection is None:
            connection = await asyncio.open_connection(HOST, self._port)
            self._open.append(connection[1])
        request = f"GET {path} HTTP/1.1\r\nHost: {HOST}:{self._port}\r\nAccept: {kind}\r\n{_HEADERS}\r\n"
        connection[1].write(request.encode())
        return connection

    def close(self) -> None:
        """Close the page."""
        for writer in self._open:
            writer.close()
