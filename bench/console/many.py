"""Lists of very many in the console: runs of a store that has them, and the events of one run."""

from __future__ import annotations

import asyncio
from typing import Final

from bench.asked import BenchError
from bench.console.tabs import MAIN, ROWS, Tab, button, chromium, tab_at
from bench.leasing import failed
from bench.lists import past, store_of
from bench.report import Table, number
from bench.rig import Rig

_HELD: Final = ("heap MB", "DOM nodes", "listeners")
_SCROLL: Final = """
(async () => {
  const box = document.querySelector('main .table');
  const frames = [];
  let last = performance.now();
  for (let at = 0; at <= 60; at += 1) {
    box.scrollTop = (box.scrollHeight - box.clientHeight) * at / 60;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return [frames.sort((one, other) => one - other)[frames.length >> 1], frames.at(-1)];
})()
"""
"""Scroll a table from its top to its end in a second, and tell of the frames: the median, and the longest."""
_PART: Final = f"/the newest [0-9]/.test({MAIN}?.innerText)"
"""The list goes on behind what the page holds."""
_LOADED: Final = f"{ROWS}.length > 0 && {_PART}"


async def runs(count: int) -> list[Table]:
    """Look at so many runs that have ended. Raises BenchError."""
    table = Table(
        f"A list of {count:,} runs that have ended",
        ("what", "ms", *_HELD),
        note="In Chromium, on the same machine as Redis and the API. Runs are written by the store's own scripts; one "
        "of them, in the middle, has failed and has a tag. What the page holds is taken after garbage collections.",
    )
    async with Rig() as rig, store_of(rig) as (store, _):
        url, _api = await rig.start_api(PALAVER_MAX_RUNS="1000000", PALAVER_CONSOLE="true", PALAVER_DIALECTS="native")
        await past(store, count // 2)
        (rare,) = await failed(store, 1, tags=("rare",))
        await past(store, count - count // 2 - 1)
        with chromium(rig.folder / "chromium") as address, tab_at(address, url) as tab:
            await asyncio.to_thread(_look_at_runs, tab, table, rare)
            tab.sound()
    return [table]


def _row(table: Table, tab: Tab, what: str, took: float | str) -> None:
    held = tab.held()
    told = took if isinstance(took, str) else number(took)
    table.rows.append((what, told, f"{held.heap:.1f}", f"{held.nodes:,}", f"{held.listeners:,}"))


def _look_at_runs(tab: Tab, table: Table, rare: str) -> None:
    tab.go("runs")
    tab.when(_LOADED)
    tab.go("runs")
    _row(table, tab, "the first 50, from the address", tab.when(_LOADED))
    took = []
    for place in range(1, 10):
        words = f"newest {50 + 200 * place:,}"
        took.append(tab.takes(f"{button('Older ones')}.click()", f"{MAIN}.innerText.includes({words!r})"))
    _row(table, tab, "*Older ones*, the first time: 250 rows", took[0])
    _row(table, tab, "*Older ones*, the last time: 1,850 rows", took[-1])
    frame, longest = tab.page.evaluate(_SCROLL)
    _row(table, tab, "scroll through 1,850 rows: a frame, and the longest", f"{number(frame)}, {number(longest)}")
    took = []
    for _ in range(3):
        before = tab.page.evaluate(f"{ROWS}[0].innerText")
        tab.page.evaluate(f"{button('Older than these')}.click()")
        took.append(tab.takes("0", f"{_LOADED} && {ROWS}[0].innerText !== {before!r}"))
        for place in range(1, 10):
            words = f"newest {50 + 200 * place:,}"
            tab.takes(f"{button('Older ones')}.click()", f"{MAIN}.innerText.includes({words!r})")
    _row(table, tab, "*Older than these*: the next 1,850 runs begin", max(took))
    fits = f"({ROWS}.length === 1 && {MAIN}.innerText.includes({rare[-8:]!r}))"
    for what, query in (("failed: one of all", "status=failed"), ("failed in the last hour", "status=failed&ended=1h")):
        tab.go(f"runs?{query}")
        _row(table, tab, what, tab.when(fits))
    tab.go("runs?tag=rare")
    took, pages = [tab.when(f"{_PART} || {fits}")], 0
    while not tab.page.evaluate(fits):
        pages += 1
        if pages > 9:
            raise BenchError("the tag is not found")
        tab.page.evaluate(f"{button('Older ones')}.click()")
        tab.page.until(f"{fits} || !{button('Older ones')}?.disabled")
    _row(table, tab, f"a tag that one has, from the address; found after *Older ones* {pages} times", took[0])
    tab.go("runs?since=today&by=cost")
    _row(table, tab, "*Dearest of today*: 1,850 runs by their cost", tab.when(f"{ROWS}.length > 0"))


async def events(count: int) -> list[Table]:
    """Look at a run that has so many events. Raises BenchError."""
    async with Rig() as rig:
        url, _ = await rig.start_api(PALAVER_CONSOLE="true", PALAVER_DIALECTS="native")
        await rig.workers_ready(rig.start_worker(10))
        turns = count // 47
        run = await rig.submit(f"parallel-45-{turns}", tools=("calculator",), max_steps=turns + 1)
        await rig.ended([run])
        table = Table("", ("what", "ms", *_HELD), note=f"{turns} turns of 45 calls of a tool each.")
        with chromium(rig.folder / "chromium") as address:
            # Another tab, with the same cache: a browser keeps pages that were left.
            for cold in (True, False):
                with tab_at(address, url) as tab:
                    told = await asyncio.to_thread(_look_at_events, tab, table, run, cold)
                    tab.sound()
            table.title = f"A run with {told:,} events, from its address with a warm cache"
    return [table]


def _look_at_events(tab: Tab, table: Table, run: str, cold: bool) -> int:
    tab.go(f"runs/{run}")
    took = tab.when(f"{MAIN}?.innerText.includes('whole') && {MAIN}.querySelector('article')")
    if cold:
        return 0
    _row(table, tab, "the newest part of the transcript, and all events read", took)
    for name, there in (("Steps", ".step"), ("Waterfall", ".falls .fall"), ("Events", ".table.many td")):
        _row(table, tab, name, tab.takes(f"{button(name)}.click()", f"{MAIN}.querySelector({there!r})"))
    frame, longest = tab.page.evaluate(_SCROLL)
    _row(table, tab, "scroll through all events: a frame, and the longest", f"{number(frame)}, {number(longest)}")
    return int(tab.page.evaluate(f"Number({MAIN}.querySelector('table').getAttribute('aria-rowcount')) - 1"))
