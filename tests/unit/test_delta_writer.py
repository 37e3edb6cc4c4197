"""What is under way is gathered, freed of secrets, and written for watchers: text and reasoning apart."""

from __future__ import annotations

import asyncio

import pytest

from palaver.secrets import redaction as secrets
from palaver.secrets.redaction import Secrets, register_secrets
from palaver.steps.leases import Delta
from tests.unit.test_tool_context import LEASE
from tests.waiting import PATIENCE
from workers.steps import delta_writer
from workers.steps.answer_stream import AnswerStream
from workers.steps.delta_writer import DeltaWriter

SECRET = "sk-Canary-2b7d9e0c41aa55e3"


class Shown:
    """Takes the place of the store."""

    def __init__(self) -> None:
        self.steps = self
        self.deltas: list[Delta] = []

    async def write_deltas(self, deltas: list[Delta]) -> None:
        self.deltas += deltas

    def said(self, *, reasoning: bool) -> str:
        return "".join(delta.text for delta in self.deltas if delta.reasoning is reasoning)


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def writer(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> DeltaWriter:
    monkeypatch.setattr(secrets, "_values", set())
    monkeypatch.setattr(secrets, "_known", Secrets())
    register_secrets([SECRET])
    return DeltaWriter(shown, 0.001)  # type: ignore[arg-type]


async def test_text_and_reasoning_are_written_apart_and_each_without_secrets(writer: DeltaWriter, shown: Shown) -> None:
    buffer = AnswerStream(writer, LEASE)
    for at in range(len(SECRET)):
        # Each alone has a secret in it, and letter by letter both have.
        buffer.show(SECRET[at], SECRET[at])
        await writer.write([buffer])
    buffer.show(" said", " thought")
    await buffer.flush()
    assert shown.said(reasoning=False) == "[redacted] said"
    assert shown.said(reasoning=True) == "[redacted] thought"


async def test_reasoning_is_written_however_short_the_answer_was(writer: DeltaWriter, shown: Shown) -> None:
    """The message that follows has the text, and not what was thought."""
    quick = AnswerStream(writer, LEASE)
    quick.show("4", "")
    await quick.flush()
    assert not shown.deltas
    thinking = AnswerStream(writer, LEASE)
    thinking.show("", "2+2")
    thinking.show("4", "")
    await thinking.flush()
    assert [(delta.reasoning, delta.text) for delta in shown.deltas] == [(True, "2+2"), (False, "4")]


async def test_what_comes_between_two_writes_is_one_delta(writer: DeltaWriter, shown: Shown) -> None:
    buffer = AnswerStream(writer, LEASE)
    for word in ("What", " comes", " together", " is", " shown", " together"):
        buffer.show(word, "")
    await writer.write([buffer])
    assert [delta.text for delta in shown.deltas] == ["What comes together is shown together"]


async def test_the_more_streams_the_longer_is_gathered_whoever_says_something_first(
    writer: DeltaWriter, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests, go_on, sleep = asyncio.Queue[float](), asyncio.Semaphore(0), asyncio.sleep

    async def rest(seconds: float) -> None:
        rests.put_nowait(seconds)
        await go_on.acquire()

    monkeypatch.setattr("workers.steps.delta_writer.asyncio.sleep", rest)
    running = asyncio.create_task(writer.run())
    buffers = [AnswerStream(writer, LEASE) for _ in range(50)]
    found = []
    for saying in (buffers, buffers[:1], buffers[:1]):
        expected = len(shown.deltas) + len(saying)
        for buffer in saying:
            buffer.show("word ", "")
        found.append(await asyncio.wait_for(rests.get(), PATIENCE))
        go_on.release()
        while len(shown.deltas) < expected:
            await sleep(0)
    assert found == [50 * delta_writer._PER_STREAM, 50 * delta_writer._PER_STREAM, 0.001]
    running.cancel()
