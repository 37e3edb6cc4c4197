"""The console in a tab of a browser, and a stack that serves it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.browser import Page, page
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE

KEY: Final = "key-of-the-operators"
VIOLATIONS: Final = (
    "window.violations = []; addEventListener('securitypolicyviolation', (event) =>"
    " violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`))"
)
TEXT: Final = "document.querySelector('main').innerText"


class Console:
    """A tab in which somebody has signed in."""

    def __init__(self, tab: Page, url: str) -> None:
        self.tab = tab
        self.url = f"{url}/console"

    def open(self, place: str, key: str | None = KEY) -> None:
        """Go to a page of the console, and sign in where it asks for it."""
        self.tab.open("about:blank")
        self.tab.open(f"{self.url}#/{place}")
        if key is not None:
            self.tab.until("!!document.querySelector('input[name=key], nav')")
            if self.tab.evaluate("!!document.querySelector('input[name=key]')"):
                self.write("input[name=key]", key)
                self.press("Sign in")
        self.tab.until("!!document.querySelector('nav, input[name=key]')")

    def visit(self, place: str) -> None:
        """Go to a page, and wait until it shows what it is about."""
        self.open(place)
        self.tab.until(
            "document.querySelector('nav') && document.querySelector('main h1')"
            " && document.querySelector('main').children.length > 1"
            f" && !{TEXT}.includes('Loading…') && !document.querySelector('main .problem')"
        )

    def write(self, where: str, text: str) -> None:
        """Type a text into a field."""
        self.tab.evaluate(f"document.querySelector({where!r}).focus()")
        self.tab.send("Input.insertText", text=text)

    def press(self, name: str) -> None:
        """Press the button of that name, once it is there and can be pressed."""
        found = f"[...document.querySelectorAll('button')].find((each) => each.innerText.trim() === {name!r})"
        self.tab.until(f"{found} && !{found}.disabled")
        self.tab.evaluate(f"{found}.click()")

    def type(self, letter: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.tab.send("Input.dispatchKeyEvent", type=kind, key=letter, text=letter if kind == "keyDown" else "")

    def sees(self, *words: str, within: float = PATIENCE) -> None:
        """Wait until the page says all of this."""
        self.tab.until(" && ".join(f"{TEXT}.includes({json.dumps(each)})" for each in words), within=within)

    def holds(self) -> None:
        """The policy was not touched, and no script has failed."""
        assert self.tab.evaluate("window.violations") == []
        assert self.tab.errors == []

    def click(self, words: str, place: str = "body") -> None:
        """Press the mouse on the one link or button that says this, or begins so, within what people see."""
        found = (
            f"[...document.querySelectorAll({f'{place} :is(a, button, summary)'!r})].filter((each) =>"
            f" each.innerText.trim().startsWith({json.dumps(words)}) && each.checkVisibility() && !each.disabled)"
        )
        self.tab.until(f"{found}.length === 1")
        where = self.tab.evaluate(
            f"(() => {{ const [each] = {found}; each.scrollIntoView({{ block: 'nearest' }});"
            " const { x, y, width, height } = each.getBoundingClientRect(); return [x + width / 2, y + height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            at = {"x": where[0], "y": where[1], "button": "left", "clickCount": 1}
            self.tab.send("Input.dispatchMouseEvent", type=kind, **at)


@contextmanager
def serving(folder: Path, providers: str = "", **more: str) -> Iterator[Cluster]:
    """A stack with the console, and with more entries of providers; it is asked with KEY."""
    environment = {"PALAVER_API_KEYS": f"ops={KEY}", "PALAVER_CONSOLE": "true", "PALAVER_DIALECTS": "native", **more}
    cluster = Cluster(folder, environment=environment)
    with cluster.providers_path.open("a") as entries:
        entries.write(providers)
    with cluster:
        cluster.http.headers.update({"Authorization": f"Bearer {KEY}"})
        yield cluster


@contextmanager
def tab_at(url: str, chromium: str) -> Iterator[Console]:
    """A tab at the API of this address, which notes what its policy forbids."""
    with page(chromium) as tab:
        tab.send("Page.addScriptToEvaluateOnNewDocument", source=VIOLATIONS)
        yield Console(tab, url)
