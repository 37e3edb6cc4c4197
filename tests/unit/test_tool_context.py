"""The context of a tool: found by its annotation, never shown to a model, easy to make, and its progress harmless."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import orjson
import pytest

from palaver import ToolContext, tool
from palaver.errors import ConfigurationError, InvalidToolCall
from palaver.schemas.models import AgentSpec, ToolCall
from palaver.secrets import redaction as secrets
from palaver.secrets.redaction import Secrets, register_secrets
from palaver.steps.leases import Delta, Lease, LogTail, ProgressDelta
from palaver.tools import Tool
from palaver.vocabulary.ids import new_run_id
from palaver.vocabulary.step_kinds import TOOL
from tests.pages import ROOT, blocks
from tests.waiting import PATIENCE, aeventually
from workers.steps.delta_writer import DeltaWriter
from workers.steps.tool_calls import ProgressBuffer, _key

LEASE = Lease("run_1", "conv_1", TOOL, "1/c1", 1, 1, 2, 0.0, 60.0, AgentSpec(model="a/b"), None, LogTail())
CALL = ToolCall(id="c1", name="charge")


@tool
def charge(amount: int, context: ToolContext, currency: str = "EUR") -> str:
    """Take money."""
    return f"{amount} {currency} {context.idempotency_key}"


@tool
async def charge_later(context: ToolContext | None = None) -> str:
    """Take money at some time."""
    return context.run_id if context else "nobody"


@tool
def annotated(*, here: Annotated[ToolContext, "the call"]) -> str:
    """Has another name for it."""
    return here.call_id


def test_a_model_does_not_see_the_context() -> None:
    assert charge.parameters["properties"].keys() == {"amount", "currency"}
    assert charge.parameters["required"] == ["amount"]
    assert "properties" not in charge_later.parameters or not charge_later.parameters["properties"]
    assert [each.context_parameter for each in (charge, charge_later, annotated)] == ["context", "context", "here"]


def test_a_model_cannot_give_the_context() -> None:
    with pytest.raises(InvalidToolCall, match="context"):
        charge.parse('{"amount": 1, "context": {}}')


async def test_a_bound_call_has_its_context() -> None:
    assert charge.bind(charge.parse('{"amount": 5}'), ToolContext(idempotency_key="k"))() == "5 EUR k"
    assert annotated.bind({}, ToolContext(call_id="c7"))() == "c7"
    assert await charge_later.bind({}, ToolContext(run_id="run_7"))() == "run_7"


async def test_a_test_of_a_tool_calls_it_as_a_function() -> None:
    said: list[tuple[str, float | None]] = []
    context = ToolContext(metadata={"customer": "17"}, report=lambda *each: said.append(each))
    assert charge(5, context=context) == f"5 EUR {context.idempotency_key}"
    assert await charge_later() == "nobody"
    assert 0 < context.time_left <= 30
    context.progress("half", fraction=0.5)
    ToolContext().progress("to nobody")
    assert said == [("half", 0.5)]


def test_two_contexts_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="one parameter may be a ToolContext, not 2"):

        @tool
        def greedy(a: ToolContext, b: ToolContext) -> None:
            """Wants it twice."""


def test_a_deadline_that_has_passed_leaves_no_time() -> None:
    assert ToolContext(deadline=datetime.now(UTC) - timedelta(seconds=5)).time_left == 0


class Evil(str):
    """Cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def _raising(text: str, fraction: float | None) -> None:
    raise OSError("nobody there")


@pytest.mark.parametrize(
    ("text", "fraction", "shown"),
    [
        ("x" * 1000, 0.3, [("x" * 500, 0.3)]),
        ("\ud800", float("nan"), [("?", None)]),
        ("far", 17, [("far", 1.0)]),
        ("near", -1, [("near", 0.0)]),
        (7, None, [("7", None)]),
        (Evil("x"), None, []),
        ("text", "a third", []),
    ],
)
def test_whatever_a_tool_reports_is_bounded_and_raises_nothing(text: Any, fraction: Any, shown: list[Any]) -> None:
    said: list[tuple[str, float | None]] = []
    ToolContext(report=lambda *each: said.append(each)).progress(text, fraction=fraction)
    assert said == shown
    ToolContext(report=_raising).progress(text, fraction=fraction)


class Shown:
    """Takes the place of the store: what watchers would see, and how often Redis would be asked."""

    def __init__(self) -> None:
        self.steps = self
        self.writes: list[list[Any]] = []
        self.broken = False

    async def write_deltas(self, deltas: list[Delta | ProgressDelta]) -> None:
        if self.broken:
            raise ConnectionError
        self.writes.append([orjson.loads(each.payload) for each in deltas])

    @property
    def texts(self) -> list[str]:
        return [each["text"] for write in self.writes for each in write]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_values", set())
    monkeypatch.setattr(secrets, "_known", Secrets())
    register_secrets(["sk-Canary-2b7d9e0c41aa55e3"])


@pytest.mark.usefixtures("known")
async def test_the_newest_progress_is_shown_without_secrets_and_from_any_thread() -> None:
    shown = Shown()
    writer = DeltaWriter(shown, 0.001)  # type: ignore[arg-type]
    running = asyncio.create_task(writer.run())
    buffer, begun = ProgressBuffer(writer, LEASE, CALL), time.monotonic()
    threads = [threading.Thread(target=_report_often, args=(buffer, n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    buffer.report("last: sk-Canary-2b7d9e0c41aa55e3", 1.0)
    await aeventually(lambda: "last: [redacted]" in shown.texts)
    assert len(shown.texts) <= time.monotonic() - begun + 1
    assert shown.writes[-1] == [
        {"step": "1/c1", "attempt": 2, "call_id": "c1", "tool": "charge", "text": "last: [redacted]", "fraction": 1.0}
    ]
    running.cancel()


def _report_often(buffer: ProgressBuffer, number: int) -> None:
    for count in range(5_000):
        buffer.report(f"{number}: {count}", None)


async def test_progress_is_shown_again_once_redis_is_back() -> None:
    shown = Shown()
    writer = DeltaWriter(shown, 0.001)  # type: ignore[arg-type]
    running = asyncio.create_task(writer.run())
    buffer = ProgressBuffer(writer, LEASE, CALL)
    shown.broken = True
    buffer.report("lost", None)
    await aeventually(lambda: buffer.lost)
    shown.broken = False
    buffer.report("seen", None)
    await aeventually(lambda: shown.texts == ["seen"])
    running.cancel()


async def test_what_is_reported_after_the_call_is_shown_to_nobody() -> None:
    shown = Shown()
    writer = DeltaWriter(shown, 0.001)  # type: ignore[arg-type]
    running = asyncio.create_task(writer.run())
    first, second = ProgressBuffer(writer, LEASE, CALL), ProgressBuffer(writer, LEASE, CALL)
    first.close()
    first.report("late", None)
    second.report("in time", None)
    await aeventually(lambda: bool(shown.texts))
    assert shown.texts == ["in time"]
    running.cancel()


@pytest.mark.parametrize("declared", [charge, charge_later, annotated])
def test_a_declaration_says_nothing_of_the_context(declared: Tool) -> None:
    assert "context" not in declared.declaration.model_dump_json().lower()


@pytest.mark.process
def test_the_tool_of_the_page_passes_the_test_of_the_page(tmp_path: Path) -> None:
    shown = [code for kind, code in blocks(ROOT / "docs" / "how-to" / "tools.md") if kind == "python"]
    for code in shown:
        name = code.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(code)
    assert (tmp_path / "test_payments.py").exists()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_another_call_under_the_same_id_has_another_key() -> None:
    """As after Redis went back in time: the model is asked again, and numbers its calls as before."""
    first = ToolCall(id="c1", name="charge", arguments='{"amount": 1}')
    keys = {_key(LEASE, call) for call in (first, first, first.model_copy(update={"arguments": '{"amount": 2}'}))}
    assert len(keys) == 2
    longest = replace(LEASE, run_id=new_run_id("00"), step=f"{10**9 - 1}/{'c' * 64}")
    assert len(_key(longest, ToolCall(id="c" * 64, name="charge"))) <= 128
