"""A page that is left open for a night: what the browser keeps of it, by the hours of the page's own clock.

The clock (`clock.js`) lets time pass as fast as its work is done, so each tick, request and drawing of the night
happens. Meanwhile runs begin and end without a pause, each with its events.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bench.asked import BenchError
from bench.console.left_alone import CLOCK, arrive, pass_by
from bench.console.tabs import MAIN, ROWS, Tab, chromium, tab_at
from bench.report import Table
from bench.rig import Rig

_HOUR: Final = 3600
_WARM: Final = 1200
"""Seconds of its clock after which a page has what it will have."""
_PAUSE: Final = 0.1
_LONG: Final = "tokens-20000+rate-30"
"""Goes on for as long as somebody measures."""


async def measure(hours: int, pages: int) -> list[Table]:
    """Leave so many pages open for so many hours. Raises BenchError."""
    table = Table(
        f"Pages that are open for {hours} hours, with news all the time",
        ("page", "after", "heap MB", "DOM nodes", "listeners", "requests so far", "on it"),
        note="By the page's own clock; each row after garbage collections. Runs begin and end all the while, some "
        "thousand in a night; the run goes on and writes for all of it.",
    )
    async with Rig() as rig:
        url, _ = await rig.start_api(PALAVER_CONSOLE="true", PALAVER_DIALECTS="native")
        await rig.workers_ready(rig.start_worker(20))
        talk = await rig.submit("echo")
        await rig.ended([talk])
        conversation = (await rig.store.runs.get(talk)).conversation_id
        going = await rig.submit(_LONG)
        news = asyncio.create_task(_news(rig))
        places = {
            "runs": "runs",
            "a run that goes on": f"runs/{going}",
            "queues and workers": "fleet",
            "a conversation that ended": f"conversations/{conversation}",
        }
        with chromium(rig.folder / "chromium") as address:
            for name, place in list(places.items())[:pages]:
                await _night(table, rig, address, url, name, place, hours)
        news.cancel()
        await asyncio.gather(news, return_exceptions=True)
    return [table]


async def _news(rig: Rig) -> None:
    while True:
        await rig.submit("echo")
        await asyncio.sleep(_PAUSE)


async def _night(table: Table, rig: Rig, address: str, url: str, name: str, place: str, hours: int) -> None:
    with tab_at(address, url, CLOCK) as tab:
        await asyncio.to_thread(arrive, tab, place)
        at = 0
        for until in (_WARM, *(hour * _HOUR for hour in sorted({1, hours // 2, hours}) if hour)):
            await asyncio.to_thread(pass_by, tab, until - at)
            at = until
            held = await asyncio.to_thread(tab.held)
            requests = tab.page.evaluate("window.requests")
            after = f"{until // 60} min" if until < _HOUR else f"{until // _HOUR} h"
            table.rows.append(
                (
                    name,
                    after,
                    f"{held.heap:.2f}",
                    f"{held.nodes:,}",
                    f"{held.listeners:,}",
                    f"{requests:,}",
                    _seen(tab, place),
                )
            )
        tab.sound()
        if place == "runs":
            await asyncio.to_thread(_tells_the_truth, tab, await _newest(rig))


def _seen(tab: Tab, place: str) -> str:
    if place == "runs":
        return f"{tab.page.evaluate(ROWS + '.length')} rows"
    return f"{tab.page.evaluate(MAIN + '.innerText.length'):,} characters shown"


async def _newest(rig: Rig) -> str:
    return (await rig.store.runs.list({}, limit=1)).runs[0].id


def _tells_the_truth(tab: Tab, newest: str) -> None:
    """Raise BenchError if the page does not come to show the newest run."""
    for _ in range(60):
        pass_by(tab, 5)
        if newest[-8:] in tab.page.evaluate(f"{ROWS}.slice(0, 100).map((row) => row.innerText).join()"):
            return
    raise BenchError("after that night the page does not show the newest run")
