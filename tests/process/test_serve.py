"""`palaver serve`, as it is typed on a server: real processes, on ports and in a directory of its own."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from features.stack.child import ChildCommand
from features.stack.ports import HOST, Ports
from features.stack.readiness import accepts
from palaver import Palaver
from palaver.config.exits import EX_CONFIG
from tests.process.test_up import Up, ends, on, running
from tests.processes import gone
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

KEY = "0123456789abcdef0123456789abcdef"
SHOP = """
from palaver import tool

@tool(idempotent=True)
def find_order(expression: str) -> str:
    "Look an order up."
    return f"delivered: {expression}"
"""


class Place:
    """A folder with a file of providers, and the ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = Ports.free()
        self.url = f"http://{HOST}:{self.ports.api}"
        file = folder / "providers.toml"
        file.write_text(f'[providers.mine]\nbase_url = "http://{HOST}:{self.ports.fake_provider}/v1"\n')
        (folder / "shop.py").write_text(SHOP)
        self.environment = {
            "PYTHONPATH": str(folder),
            "PALAVER_PROVIDERS": str(file),
            "PALAVER_API_KEYS": f"ann={KEY}",
            "PALAVER_DRAIN_GRACE": "1",
            **on(self.ports),
        }

    def client(self) -> Palaver:
        """One that has a key."""
        return Palaver(self.url, KEY)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """With the model server of the tests."""
    place = Place(tmp_path)
    port = place.ports.fake_provider
    model = ChildCommand(
        "model",
        [sys.executable, "-m", "tests.model_server", "--host", HOST, "--port", str(port)],
        environment=os.environ,
        log_path=tmp_path / "model.log",
        ready=lambda _: accepts(port),
    )
    model.start()
    try:
        model.wait_until_ready(time.monotonic() + PATIENCE)
        yield place
    finally:
        model.kill(signal.SIGKILL)


def processes(shown: str) -> dict[str, int]:
    """The ids of those that are ready, by name."""
    return {name: int(pid) for name, pid in re.findall(r"([a-z]+(?:-\d+)?) is ready \(process (\d+)\)", shown)}


def served(serve: Up) -> str:
    """What it says until everything is ready."""
    return serve.read_until("serving at") + serve.read_until("workers ")


def test_what_it_did_and_what_was_under_way_is_there_after_a_restart(place: Place) -> None:
    with running(place.folder, "serve", **place.environment) as serve:
        shown = served(serve)
        assert processes(shown).keys() == {"redis", "api-1", "worker-1"}
        assert "model-1" not in shown
        with place.client() as client:
            run = client.run("What is 1 + 1?", model="mine/tool-1", tools=["calculator"])
            assert (run.status, run.usage.tool_calls) == ("completed", 1)
            under_way = client.submit("hello", model="mine/tokens-200+rate-20")
            eventually(lambda: client.get(under_way.id).status == "running", why="it has begun")
        ends(serve, signal.SIGTERM, least=3)
    assert not [*(serve.data_dir / "logs").glob("*")], "what they write goes to standard output"
    with running(place.folder, "serve", **place.environment) as serve, place.client() as client:
        served(serve)
        assert client.get(run.id).output == run.output
        assert client.wait(under_way.id, timeout=PATIENCE).status == "completed"
        assert client.run("And now?", model="mine/echo", conversation_id=run.conversation_id).status == "completed"


def test_what_is_killed_comes_back_and_its_run_completes(place: Place) -> None:
    with running(place.folder, "serve", "--workers", "2", **place.environment) as serve:
        before = processes(served(serve))
        with place.client() as client:
            run = client.submit("hello", model="mine/tool-1+tokens-60+rate-20", tools=["calculator"])
            eventually(lambda: client.get(run.id).status == "running", why="it has begun")
            for name in ("worker-1", "worker-2", "api-1"):
                os.kill(before[name], signal.SIGKILL)
            ended = [serve.read_until("has ended; starting it again") for _ in range(3)]
            assert all(name in "".join(ended) for name in ("worker-1", "worker-2", "api-1"))
            # Each is seen to answer again: the API to this client, the workers by the end of the run.
            assert eventually(lambda: client.get(run.id)).id == run.id
            assert client.wait(run.id, timeout=PATIENCE).status == "completed"
        pids = serve.pids
        assert not set(before.values()) - {before["redis"]} & set(pids)
        serve.process.kill()
        eventually(lambda: all(gone(pid) for pid in pids), why="no process is left without the one above them")


def test_a_tool_that_blocks_has_a_process_of_its_own(place: Place) -> None:
    with running(place.folder, "serve", **place.environment, PALAVER_TOOLS="shop") as serve:
        shown = serve.read_until("find_order: not async")
        assert processes(shown).keys() == {"redis", "api-1", "worker-1", "tools-1"}
        with place.client() as client:
            run = client.run("hello", model="mine/tool-1", tools=["find_order"])
        assert (run.status, run.usage.tool_calls) == ("completed", 1)
        ends(serve, signal.SIGTERM, least=4)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PALAVER_PROVIDERS": ""}, "palaver: PALAVER_PROVIDERS is not set"),
        ({"PALAVER_HOST": "0.0.0.0", "PALAVER_API_KEYS": ""}, "palaver: PALAVER_HOST: 0.0.0.0 is reached from"),
        # Only the API finds out: the others are ended.
        ({"PALAVER_DIALECTS": "klingon"}, "palaver: api-1 exited with 78: PALAVER_DIALECTS: no dialect 'klingon'"),
    ],
)
def test_a_wrong_setting_ends_it_with_its_sentence(place: Place, variables: dict[str, str], said: str) -> None:
    with running(place.folder, "serve", **{**place.environment, **variables}) as serve:
        pids = serve.pids
        serve.read_until(said)
        assert serve.process.wait(PATIENCE) == EX_CONFIG
        assert [pid for pid in pids if not gone(pid)] == []
