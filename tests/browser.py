"""A Chromium without a window, driven over its own protocol: pages of examples are tried as a person would try them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.waiting import PATIENCE, eventually

PROGRAM: Final = shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="NO PAGE IS CHECKED: there is no chromium")
_LOADS: Final = 300
_HEARING: Final = """
const plain = window.fetch;
window.fetch = async (...request) => {
  const answer = await plain(...request);
  if (!answer.headers.get("content-type")?.startsWith("text/event-stream")) return answer;
  const [kept, heard] = answer.body.tee();
  const stream = crypto.randomUUID();
  const tell = (text) => window.tell(JSON.stringify({ stream, text }));
  heard.pipeThrough(new TextDecoderStream()).pipeTo(new WritableStream({ write: tell })).catch(() => undefined);
  return new Response(kept, answer);
};
"""
"""What has a page tell of each stream that it is sent, as it comes."""


class Page:
    """A page in a tab of its own."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = count(1)
        self.errors: list[str] = []
        """What its scripts raised and nobody caught."""
        self._streams: dict[str, str] = {}
        for domain in ("Page", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Go to an address; also the one where it is."""
        self._call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def reload(self) -> None:
        """Load it again, as with F5."""
        self._call("Page.reload")
        self.until("document.readyState === 'complete'")

    def hear(self) -> None:
        """From its next opening on, keep what its streams bring."""
        self._call("Runtime.addBinding", name="tell")
        self._call("Page.addScriptToEvaluateOnNewDocument", source=_HEARING)

    def heard(self) -> list[list[dict[str, Any]]]:
        """The events of each stream so far. The last frame of one that broke off may be a part of one."""
        self.evaluate("true")
        frames = [text.split("\n\n")[:-1] for text in self._streams.values()]
        told = [[each.removeprefix("data: ") for each in stream if each.startswith("data: ")] for stream in frames]
        return [[json.loads(data) for data in stream if data != "[DONE]"] for stream in told]

    def to_front(self) -> None:
        """Show it in the place of the other tabs."""
        self._call("Page.bringToFront")

    def evaluate(self, expression: str) -> Any:
        """Return what an expression is in the page, once it is there if it is a promise."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, within: float = _LOADS) -> Any:
        """Wait until an expression is true there; return what it is."""
        return eventually(lambda: self._now(expression), within=within, every=0.05, why=expression)

    def _now(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of its protocol; return the answer."""
        return self._call(method, **parameters)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv(timeout=_LOADS))
            if told.get("method") == "Runtime.exceptionThrown":
                details = told["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])
            if told.get("method") == "Runtime.bindingCalled":
                piece = json.loads(told["params"]["payload"])
                self._streams[piece["stream"]] = self._streams.get(piece["stream"], "") + piece["text"]
            if told.get("id") == number:
                assert "error" not in told, told["error"]
                return dict(told["result"])


@contextmanager
def browser(folder: Path) -> Iterator[str]:
    """A browser that keeps what it has in a folder; its address, for ``page``."""
    assert PROGRAM is not None
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run")
    log = folder / "chromium.log"
    with log.open("w") as written:
        chromium = subprocess.Popen(
            [PROGRAM, *options, f"--user-data-dir={folder / 'profile'}", "about:blank"], stdout=written, stderr=written
        )
    try:
        ports = folder / "profile" / "DevToolsActivePort"
        eventually(lambda: ports.exists() and len(ports.read_text().split()) == 2, within=_LOADS, why=str(log))
        yield f"http://127.0.0.1:{ports.read_text().split()[0]}"
    finally:
        chromium.terminate()
        chromium.wait()


@contextmanager
def page(address: str) -> Iterator[Page]:
    """A tab of a browser."""
    made = httpx.put(f"{address}/json/new?about:blank", trust_env=False, timeout=PATIENCE).json()
    try:
        with connect(made["webSocketDebuggerUrl"], max_size=None, proxy=None) as socket:
            yield Page(socket)
    finally:
        httpx.get(f"{address}/json/close/{made['id']}", trust_env=False, timeout=PATIENCE)
