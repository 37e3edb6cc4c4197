"""A console in Chromium, and what a look at it costs the browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.asked import BenchError
from tests.browser import PROGRAM, Page, browser, page

MAIN: Final = "document.querySelector('main')"
ROWS: Final = "[...document.querySelectorAll('main tbody tr:not([aria-hidden])')]"
_SEEING: Final = """
window.seen = (test) => new Promise((done) => {
  const look = () => {
    if (!test()) return;
    observer.disconnect();
    done(performance.now());
  };
  const observer = new MutationObserver(look);
  observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  look();
});
"""
"""What has a page tell when something is on it: when the change that brought it is made."""


class Held(NamedTuple):
    """The parts of a page that a browser keeps, after a garbage collection."""

    heap: float
    """MB of its scripts."""
    nodes: int
    listeners: int


class Tab:
    """A tab at the console of an API that wants no key."""

    def __init__(self, tab: Page, url: str) -> None:
        self.page = tab
        self._url = f"{url}/console"
        tab.send("Page.addScriptToEvaluateOnNewDocument", source=_SEEING)
        tab.send("Performance.enable")
        tab.send("Network.enable")

    def go(self, place: str) -> None:
        """Open a page of it, as from an address that was kept."""
        self.page.open("about:blank")
        self.page.open(f"{self._url}#/{place}")

    def when(self, test: str) -> float:
        """Milliseconds from the page's beginning until that is so; it is waited for. Raises BenchError."""
        try:
            return float(self.page.evaluate(f"seen(() => {test})"))
        except TimeoutError:
            raise BenchError(f"the console does not show {test}:\n{self.page.evaluate(MAIN + '.innerText')}") from None

    def takes(self, act: str, test: str) -> float:
        """Milliseconds from an act in the page until something is so."""
        began, ended = self.page.evaluate(
            f"(async () => {{ const began = performance.now(); {act}; return [began, await seen(() => {test})] }})()"
        )
        return float(ended - began)

    def held(self) -> Held:
        """Collect the garbage, and look."""
        for _ in range(2):
            self.page.send("HeapProfiler.collectGarbage")
        told = {each["name"]: each["value"] for each in self.page.send("Performance.getMetrics")["metrics"]}
        return Held(told["JSHeapUsedSize"] / 1e6, int(told["Nodes"]), int(told["JSEventListeners"]))

    def sound(self) -> None:
        """Raise BenchError if one of its scripts has failed."""
        self.page.evaluate("true")
        if self.page.errors:
            raise BenchError(f"the console has faults: {self.page.errors[:3]}")


def button(words: str) -> str:
    """The button, or the link, that says so, in the page."""
    all_of_them = "[...document.querySelectorAll('main :is(button, a)')]"
    return f"{all_of_them}.find((each) => each.innerText.trim() === {json.dumps(words)})"


@contextmanager
def chromium(folder: Path) -> Iterator[str]:
    """A browser; its address, for `tab_at`. Raises BenchError where there is none."""
    if PROGRAM is None:
        raise BenchError("there is no chromium on this machine")
    folder.mkdir(exist_ok=True)
    with browser(folder) as address:
        yield address


@contextmanager
def tab_at(address: str, url: str, *scripts: str) -> Iterator[Tab]:
    """A tab, with more scripts in each of its pages."""
    with page(address) as tab:
        for script in scripts:
            tab.send("Page.addScriptToEvaluateOnNewDocument", source=script)
        yield Tab(tab, url)
