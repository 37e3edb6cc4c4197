"""The pages in examples/ in a browser: each starts with one command, and shows the same after it was reloaded."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from palaver.stack.ports import Ports
from tests.browser import browser, needs_chromium, page
from tests.pages import ROOT
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.chaos, needs_chromium]

SENT = "document.querySelector('input').value = 'What is 1 + 1?', document.forms[0].requestSubmit(), true"
LOG = "document.querySelector('#log').innerText"
STATE = "document.querySelector('#state').textContent"


def _press(name: str) -> str:
    return f"[...document.querySelectorAll('button')].find((each) => each.textContent === {name!r}).click(), true"


def test_a_chat_by_plain_fetch(tmp_path: Path) -> None:
    ports = Ports.free()
    environment = {
        **os.environ,
        **{f"PALAVER_{name.upper()}_PORT": str(port) for name, port in vars(ports).items()},
        "PALAVER_DATA_DIR": str(tmp_path / "data"),
        "PAGE_PORT": str(ports.free().api),
    }
    environment.pop("PALAVER_URL", None)
    log, ready = tmp_path / "served.log", f"http://127.0.0.1:{ports.api}/readyz"
    with log.open("w") as written:
        serving = subprocess.Popen(
            [sys.executable, "examples/serve.py", "plain-fetch"],
            cwd=ROOT,
            env=environment,
            stdout=written,
            stderr=written,
        )
    try:
        eventually(lambda: "open http" in log.read_text(), within=90, why="the page is served")
        url = next(line.split()[-1] for line in log.read_text().splitlines() if line.startswith("open "))
        with browser(tmp_path) as address, page(address) as chat:
            chat.open(url)
            chat.until("location.hash.startsWith('#conv_')")
            chat.evaluate(SENT)
            chat.until(_press("approve"))
            chat.until(f"{LOG}.includes('→ 2') && {LOG}.includes('done')")
            chat.reload()
            chat.until(f"{STATE} === 'completed' && {LOG}.includes('→ 2')")
            chat.evaluate(SENT)
            chat.until("document.querySelector('#log button') !== null")
            apis = re.findall(r"api-1 is ready \(process (\d+)\)", log.read_text())
            os.kill(int(apis[-1]), signal.SIGKILL)
            eventually(lambda: "api-1 has ended" in log.read_text(), within=60, why="its end is noticed")
            eventually(lambda: httpx.get(ready, trust_env=False).is_success, within=60, why="the API is up again")
            chat.evaluate(_press("deny"))
            chat.until(f"document.querySelector('#log button') === null && {LOG}.includes('deny')")
            with page(address) as other:
                other.open(chat.evaluate("location.href"))
                assert other.until(f"{LOG}.includes('→ 2') && {LOG}") is not None
            assert chat.errors == []
    finally:
        serving.send_signal(signal.SIGINT)
        serving.wait(timeout=60)
