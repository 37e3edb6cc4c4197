"""What a browser fetches for the page of a run, and when something of the run is on it: with nothing in its cache."""

from __future__ import annotations

import asyncio
from statistics import median
from typing import Any, Final

from bench.console.tabs import MAIN, Tab, chromium, tab_at
from bench.report import Table, number
from bench.rig import Rig

_SAID: Final = f"{MAIN}?.querySelector('article.assistant')"
_FETCHED: Final = """
[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].map((each) =>
  [new URL(each.name).pathname, each.transferSize])
"""
_LINES: Final = {
    "on this machine": {},
    "20 ms away, 10 Mbit/s": {"latency": 20, "downloadThroughput": 1_250_000, "uploadThroughput": 1_250_000},
    "100 ms away, 10 Mbit/s": {"latency": 100, "downloadThroughput": 1_250_000, "uploadThroughput": 1_250_000},
}


async def measure(rounds: int) -> list[Table]:
    """Open the page of a run that has ended so many times on each line, cold and warm. Raises BenchError."""
    table = Table(
        f"The page of a run that has ended, opened by its address ({rounds} times)",
        ("", "files", "KB of them", "answers of the API", "KB of them", "ms to the model's words", "range"),
        note="Transferred, with headers, as the browser counts; from the first request to the first message of the "
        "model in the document. Cold: the browser's cache is emptied before. The line is the browser's own emulation.",
    )
    async with Rig() as rig:
        url, _ = await rig.start_api(PALAVER_CONSOLE="true", PALAVER_DIALECTS="native")
        await rig.workers_ready(rig.start_worker(10))
        run = await rig.submit("tool-3", tools=("calculator",))
        await rig.ended([run])
        with chromium(rig.folder / "chromium") as address, tab_at(address, url) as tab:
            for words, line in _LINES.items():
                for cold in (True, False):
                    table.rows.append(await asyncio.to_thread(_row, tab, f"runs/{run}", words, line, cold, rounds))
            tab.sound()
    return [table]


def _row(tab: Tab, place: str, words: str, line: dict[str, int], cold: bool, rounds: int) -> tuple[str, ...]:
    conditions = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1, **line}
    tab.page.send("Network.emulateNetworkConditions", **conditions)
    took, fetched = [], list[list[Any]]()
    for _ in range(rounds + 1):
        if cold:
            tab.page.send("Network.clearBrowserCache")
        tab.go(place)
        took.append(tab.when(_SAID))
        tab.when(f"{MAIN}.innerText.includes('whole')")
        fetched = tab.page.evaluate(_FETCHED)
    took = took[1:]
    files = [size for path, size in fetched if "/console" in path]
    answers = [size for path, size in fetched if "/v1/" in path]
    sizes = (f"{len(files)}", number(sum(files) / 1e3), f"{len(answers)}", number(sum(answers) / 1e3))
    name = f"{words}, {'cold' if cold else 'warm'}"
    return (name, *sizes, number(median(took)), f"{number(min(took))} to {number(max(took))}")
