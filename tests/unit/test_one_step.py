"""docs/why/one-step.md is the way of a real model step: what is named is passed, in that order, and nothing that
counts is missing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

import pytest

from docs import one_step
from docs.one_step import ROOT, page
from docs.walk import LEFT_OUT, LUA
from palaver.config.providers import Provider
from palaver.config.settings import Settings
from palaver.processes.tasks import end
from palaver.schemas.models import AgentSpec
from palaver.store import Store
from palaver.store.scripting.additions import all_hooks, all_lua_files
from palaver.store.scripting.assembly import Assembler
from palaver.vocabulary.step_kinds import MODEL
from tests.contract.clock import TurnedDatabase
from tests.contract.store_driver import StoreDriver
from tests.model_server import ModelServer
from tests.waiting import aeventually
from workers.models.late_port import LateModelPort
from workers.sources import SOURCES, open_toolbox
from workers.steps import step_functions as step_functions  # each `@step` in it is the work of a kind
from workers.steps.capabilities import Capabilities
from workers.steps.histograms import Histograms
from workers.steps.registry import handler_of
from workers.steps.runtime import Runtime
from workers.steps.step import make_attempt

MODEL_NAME = "fake/tokens-40+rate-100"
"""It answers slowly enough to be shown while it comes."""
SHORT = 10
"""Lines of a function that may be left out without a word."""
SCRIPTS = Assembler({}, all_lua_files(), all_hooks())
MOST_LINES, MOST_FILES = 500, 16

Passed = dict[tuple[str, str], int]
"""File and name of what was called, and its lines, in the order of the first calls; a script by its file."""


@contextmanager
def recording(passed: Passed) -> Iterator[None]:
    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{ROOT}/"):
            return
        file, name = code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname
        if not file.startswith(("workers/", "palaver/")) or "<" in name:
            return
        passed.setdefault((file, name), max(line for *_, line in code.co_lines() if line) - code.co_firstlineno + 1)
        if name == "Scripts.run":
            for part in reversed(SCRIPTS.parts(frame.f_locals["script"].name)):
                passed.setdefault((f"{LUA}{part}.lua", ""), 0)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


@asynccontextmanager
async def worker(store: Store, settings: Settings, model: ModelServer) -> AsyncIterator[Runtime]:
    """A model worker in this process: what it hears of providers, and the writer of deltas."""
    providers = {"fake": Provider(base_url=model.base_url)}
    async with open_toolbox(settings, SOURCES) as tools:
        port = LateModelPort(providers)
        able, histograms = Capabilities(tools, providers), Histograms(MODEL)
        runtime = Runtime(
            settings, histograms, queues=[MODEL.queue], node="w", capacity=1, capabilities=able, model=port
        )
        chores = [asyncio.create_task(chore()) for chore in (runtime.limiter.listen, runtime.deltas.run)]
        try:
            await aeventually(lambda: not runtime.limiter.asks("fake"))
            yield runtime
        finally:
            await end(*chores)
            await runtime.publisher.close()
            await port.close()


async def walk(monkeypatch: pytest.MonkeyPatch) -> Passed:
    """What the first step of a run passes, in a worker that has done others."""
    settings = Settings(redis_url="redis://127.0.0.1:1/0")
    redis, passed = TurnedDatabase().client(), Passed()
    store = Store(redis, settings)
    monkeypatch.setattr(Store, "connect", lambda *_, **__: store)
    driver = StoreDriver(store, redis)
    async with ModelServer() as model, worker(store, settings, model) as runtime:
        # The first one imports, connects and fills caches.
        await make_attempt(handler_of, runtime, MODEL, *await delivered(driver))
        ids = await delivered(driver)
        with recording(passed):
            await make_attempt(handler_of, runtime, MODEL, *ids)
        assert (await store.runs.get(ids[0])).status == "completed"
    return passed


async def delivered(driver: StoreDriver) -> tuple[str, str, str]:
    """The ids of a new run's first step."""
    (delivery,) = (await driver.submit(agent=AgentSpec(model=MODEL_NAME))).deliveries
    return delivery.run_id, delivery.conversation_id, delivery.step


def is_left_out(file: str, name: str, what: str) -> bool:
    """Whether this entry of the list is about the function."""
    return what == f"{file}:{name}" or (":" not in what and file.startswith(what))


async def test_a_real_step_passes_what_is_named_and_in_that_order(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = await walk(monkeypatch)
    order, wanted = list(passed), list(one_step.passed())
    assert [each for each in wanted if each not in passed] == []
    assert len(set(wanted)) == len(wanted)
    assert [each for each in order if each in set(wanted)] == wanted
    missing = [
        f"{file}:{name}"
        for (file, name), lines in passed.items()
        if lines > SHORT and (file, name) not in wanted and not any(is_left_out(file, name, each) for each in LEFT_OUT)
    ]
    assert missing == [], "name it, or have it in LEFT_OUT"
    idle = [what for what in LEFT_OUT if not any(is_left_out(file, name, what) for file, name in passed)]
    assert idle == [], "no step passes it"


def test_it_can_be_read_in_an_evening() -> None:
    assert len(page().splitlines()) <= MOST_LINES
    assert len({file for file, _ in one_step.passed()}) <= MOST_FILES
