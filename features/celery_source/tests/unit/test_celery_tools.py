"""Tasks of other Celery applications as tools: what is sent, when it is sent again, and what its end says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from celery import Celery
from celery.app.control import Control
from celery.app.task import Context
from celery.backends.base import DisabledBackend
from celery.exceptions import Retry

from features.celery_source import applications
from palaver import ToolContext
from palaver.celery import report
from palaver.celery.reports import Reports, result_facts
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, RetryableToolError, ToolError, ToolTimeout
from palaver.errors.sentences import IN_DOUBT
from palaver.tools import ToolDeclaration
from tests.unit.declared_tools import tools_of_file
from tests.waiting import aeventually
from workers.commands import tool_sources
from workers.sources import Toolbox
from workers.sources.containment import cancel, is_cancel, left_behind
from workers.sources.guests import declared_sources

_ID = "palaver:run_1:1:c:d"
_TOOLS = """
[celery.shop]
broker = "memory://"
timeout = 5

[celery.shop.tasks.refund]
task = "shop.refund"
queue = "payments"
risky = true
parameters.properties = { order = { type = "string" } }

[celery.shop.tasks.look]
task = "shop.look"
idempotent = true
description = "Look at an order."
parameters.properties = { order = { type = "string" } }
timeout = 0.4
"""
shop = Celery("shop", broker="memory://", set_as_current=False)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Reports:
    """The reports of a Redis of the test's, in the place of the broker's."""
    reports = Reports(fakeredis.FakeRedis(server=fakeredis.FakeServer()), "pre:")
    monkeypatch.setattr(applications, "reports_over", lambda _: reports)
    return reports


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was published."""
    calls: list[dict[str, Any]] = []

    def send(self: Celery, name: str, **options: Any) -> None:
        calls.append({"task": name, **options})

    monkeypatch.setattr(Celery, "send_task", send)
    return calls


@pytest.fixture
def revoked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks that were revoked."""
    ids: list[str] = []
    monkeypatch.setattr(Control, "revoke", lambda _, task_id, **__: ids.append(task_id))
    return ids


@pytest.fixture
async def tools(tmp_path: Path, server: Reports) -> AsyncIterator[Toolbox]:
    async with tools_of_file(tmp_path, _TOOLS) as opened:
        yield opened


def _context(shown: list[str] | None = None) -> ToolContext:
    return ToolContext(
        idempotency_key=_ID.removeprefix("palaver:"),
        report=lambda text, _: None if shown is None else shown.append(text),
    )


async def test_a_task_is_published_under_the_key_of_its_call_and_its_report_is_the_answer(
    tools: Toolbox, server: Reports, sent: list[dict[str, Any]]
) -> None:
    shown: list[str] = []
    _, arguments = tools.check("refund", '{"order": "4711"}')
    call = asyncio.create_task(tools.call("refund", arguments, _context(shown)))
    await aeventually(lambda: sent)
    (one,) = sent
    assert (one["task"], one["task_id"], one["queue"], one["kwargs"]) == (
        "shop.refund",
        _ID,
        "payments",
        {"order": "4711"},
    )
    assert 0 < one["expires"] <= 5
    server.add(_ID, "started", worker="w@host", retries=0)
    await aeventually(lambda: "runs at w@host" in shown)
    server.add(_ID, "success", **result_facts({"refunded": "4711"}))
    assert await call == '{"refunded": "4711"}'


@pytest.mark.parametrize(
    ("state", "facts", "said"),
    [
        ("failure", {"error": "ValueError", "message": "no"}, "the task failed: ValueError: no"),
        ("failure", {"error": "WorkerLostError", "message": "x"}, f"The process that ran the task was lost.{IN_DOUBT}"),
        ("revoked", {"terminated": False, "expired": True}, "was not begun in time, so nothing was done"),
        ("revoked", {"terminated": False, "expired": False}, "revoked before it began"),
        ("revoked", {"terminated": True, "expired": False}, f"The task was revoked.{IN_DOUBT}"),
    ],
)
async def test_the_end_of_a_task_is_told_truthfully(
    tools: Toolbox, server: Reports, sent: list[dict[str, Any]], state: Any, facts: dict[str, Any], said: str
) -> None:
    call = asyncio.create_task(tools.call("refund", {"order": "1"}, _context()))
    await aeventually(lambda: sent)
    server.add(_ID, state, **facts)
    with pytest.raises(ToolError) as raised:
        await call
    assert str(raised.value).endswith(said) or said in str(raised.value)
    assert not isinstance(raised.value, RetryableToolError)


async def test_a_call_that_is_made_again_finds_its_task(
    tools: Toolbox, server: Reports, sent: list[dict[str, Any]], revoked: list[str]
) -> None:
    """As a worker that was lost, or that hands its step back, leaves it."""
    first = asyncio.create_task(tools.call("refund", {"order": "1"}, _context()))
    await aeventually(lambda: sent)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    again = asyncio.create_task(tools.call("refund", {"order": "1"}, _context()))
    server.add(_ID, "success", **result_facts("done"))
    assert await again == "done"
    assert (len(sent), revoked) == (1, [])


@pytest.mark.parametrize(("tool", "sends"), [("refund", 0), ("look", 1)])
async def test_what_may_have_been_published_is_published_again_only_if_it_is_idempotent(
    tools: Toolbox, server: Reports, sent: list[dict[str, Any]], revoked: list[str], tool: str, sends: int
) -> None:
    assert server.mark(_ID)
    call = asyncio.create_task(tools.call(tool, {"order": "1"}, _context()))
    if sends:
        await aeventually(lambda: sent)
    server.add(_ID, "success", **result_facts("found"))
    assert await call == "found"
    assert len(sent) == sends


async def test_a_cancelled_run_revokes_its_task_and_so_does_the_end_of_its_time(
    tools: Toolbox, sent: list[dict[str, Any]], revoked: list[str]
) -> None:
    call = asyncio.create_task(tools.call("refund", {"order": "1"}, _context()))
    await aeventually(lambda: sent)
    cancel(call)
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await call
    assert is_cancel(cancelled.value)
    assert revoked == [_ID]
    with pytest.raises(ToolTimeout, match=r"look took longer than 0.4 s, and was revoked\. It may or may not"):
        await tools.call("look", {"order": "1"}, _context())
    assert revoked == [_ID, _ID]


async def test_a_task_that_is_sent_while_its_run_is_cancelled_is_revoked_behind_that(
    tools: Toolbox, server: Reports, revoked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sending, go_on = threading.Event(), threading.Event()

    def send(*_: Any, **__: Any) -> None:
        sending.set()
        go_on.wait(5)
        assert revoked == []

    monkeypatch.setattr(Celery, "send_task", send)
    call = asyncio.create_task(tools.call("refund", {"order": "1"}, _context()))
    await aeventually(sending.is_set)
    cancel(call)
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert revoked == [_ID]
    assert server.read(_ID)[0]["state"] == "published"


async def test_a_cancel_is_told_from_a_step_that_is_handed_back_on_a_loop_too() -> None:
    found: list[bool] = []

    async def call() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            found.append(is_cancel(error))
            raise
        return ""

    declared = ToolDeclaration(name="x", description="", timeout=5)
    for stop in (cancel, asyncio.Task.cancel):
        waiting = asyncio.create_task(left_behind(declared, call()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stop(waiting)
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert found == [True, False]


async def test_a_broker_that_is_not_reached_was_sent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[dict[str, Any]]
) -> None:
    text = '[celery.far]\nbroker = "redis://127.0.0.1:1/0"\ntasks.x = { parameters = { type = "object" } }'
    async with tools_of_file(tmp_path, text) as tools:
        with pytest.raises(RetryableToolError, match="nothing was sent"):
            await tools.call("x", {}, _context())
    assert sent == []


async def test_without_reports_the_result_backend_is_asked(
    tmp_path: Path, server: Reports, sent: list[dict[str, Any]], revoked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, Any] = {"status": "PENDING", "result": None}
    monkeypatch.setattr(applications, "DisabledBackend", type(None))
    monkeypatch.setattr(DisabledBackend, "get_task_meta", lambda *_: known, raising=False)
    async with tools_of_file(tmp_path, _TOOLS) as tools:
        known.update(status="SUCCESS", result=[1, 2])
        assert await tools.call("refund", {"order": "1"}, _context()) == "[1, 2]"
        for status, result, said in (("FAILURE", ValueError("no"), "ValueError: no"), ("REVOKED", None, "revoked")):
            known.update(status=status, result=result)
            with pytest.raises(ToolError, match=said):
                await tools.call("refund", {"order": "1"}, _context())
    assert len(sent) == 1


class _Sender:
    """A task as a signal names it."""

    def __init__(self, app: Celery) -> None:
        self.app = app
        self.acks_late = False
        self.request = Context(id=_ID, hostname="w@host", retries=1)


@pytest.fixture
def reporter(server: Reports, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a worker of an application would do with its signals."""
    from palaver.celery import reporting

    monkeypatch.setattr(reporting, "reports_over", lambda _: server)
    monkeypatch.setattr(reporting, "_PAUSES", (0.0, 0.0))
    return reporting._Reporter(shop, None)


def test_a_worker_reports_what_becomes_of_tasks_that_are_calls_and_of_no_others(server: Reports, reporter: Any) -> None:
    sender = _Sender(shop)
    reporter.started(sender, task_id=_ID, task=sender)
    assert server.read(_ID) == []
    server.mark(_ID)
    reporter.started(sender, task_id=_ID, task=sender)
    reporter.started(sender, task_id="other", task=sender)
    reporter.started(_Sender(Celery("other", set_as_current=False)), task_id=_ID, task=sender)
    reporter.retried(sender, request=sender.request, reason=Retry(exc=OSError("busy"), when=3))
    reporter.succeeded(sender, result={"at": Path("/x")})
    reporter.succeeded(sender, result=float)
    reporter.failed(sender, task_id=_ID, exception=KeyError("k"))
    reporter.revoked(sender, request=sender.request, terminated=True, expired=None)
    reporter.unknown(sender, id=_ID, name="no.such")
    assert [(each["state"], each.get("error"), each.get("result")) for each in server.read(_ID)] == [
        ("started", None, None),
        ("retry", "OSError", None),
        ("success", None, {"at": "/x"}),
        ("success", None, "<class 'float'>"),
        ("failure", "KeyError", None),
        ("revoked", None, None),
        ("failure", "NotRegistered", None),
    ]
    assert server.read("other") == []


def test_a_report_that_does_not_come_through_is_sent_again_and_stops_no_task(
    server: Reports, reporter: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server.mark(_ID)
    add, tries = server.add, []

    def fail(*arguments: Any, **facts: Any) -> None:
        tries.append(arguments)
        if len(tries) < 3:
            raise ConnectionError("secret")
        add(*arguments, **facts)

    monkeypatch.setattr(server, "add", fail)
    reporter.succeeded(_Sender(shop), result=1)
    assert (len(tries), server.read(_ID)[-1]["result"]) == (3, 1)
    tries.clear()
    monkeypatch.setattr(server, "add", lambda *_, **__: 1 / 0)
    reporter.failed(_Sender(shop), task_id=_ID, exception=ValueError())
    assert "its failure was not reported: ZeroDivisionError" in caplog.text


def test_what_is_read_is_bounded_and_junk_is_left_out(server: Reports) -> None:
    server.mark(_ID)
    large = "x" * 2_000_000
    assert len(json.dumps(result_facts(large))) < 600_000
    for text in (b"", b"{", b"[]", b'{"state": "no"}', b'{"state": "started"}'):
        server._client.rpush(f"pre:palaver:task:{_ID}", text)
    assert server.read(_ID) == [{"state": "started"}]
    assert 0 < server._client.ttl(f"pre:palaver:task:{_ID}:sent") <= 7 * 86_400


def test_report_may_be_called_twice() -> None:
    app = Celery("twice", broker="memory://", set_as_current=False)
    from celery import signals

    before = len(signals.task_success.receivers)
    report(app)
    report(app)
    assert len(signals.task_success.receivers) == before + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('broker_env = "NO_SUCH"\ntasks.x = { parameters = { type = "object" } }', "NO_SUCH is not set"),
        (
            'broker = "redis+cluster://x"\ntasks.x = { parameters = { type = "object" } }',
            "broker: Celery cannot use a Redis in cluster mode: name one server with `cluster-enabled no`",
        ),
        (
            'broker = "redis://x"\nreports_env = "A_CLUSTER"\ntasks.x = { parameters = { type = "object" } }',
            "A_CLUSTER: Celery cannot use a Redis in cluster mode",
        ),
        ('broker = "redis://u:p@x"\ntasks.x = { parameters = { type = "object" } }', "broker: has a login"),
        ('broker = "redis://x"\ntasks.x = {}', "tasks.x: needs parameters"),
        ('app = "a:b"\nbroker = "redis://x"\ntasks.x = {}', "has one of app, broker, and broker_env"),
        ("tasks.x = {}", "has one of app, broker, and broker_env"),
        ('app = "a:b"', "shop.tasks"),
    ],
)
async def test_a_table_that_does_not_fit_is_a_sentence(
    tmp_path: Path, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_CLUSTER", "rediss+cluster://:s3cret-of-a-cluster@x:1,y:2/0")
    with pytest.raises(ConfigurationError) as refused:
        async with tools_of_file(tmp_path, f"[celery.shop]\n{text}\n"):
            pass
    assert str(refused.value).startswith("PALAVER_TOOL_SOURCES: ")
    assert said in str(refused.value)
    assert "s3cret" not in str(refused.value)


async def test_check_says_whether_workers_have_the_tasks(
    tmp_path: Path, server: Reports, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tools.toml"
    file.write_text(_TOOLS)
    here = Settings(tool_sources=file)
    sources = declared_sources(here.tool_sources)

    class Workers:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def registered(self) -> dict[str, list[str]]:
            return {"w@a": registered, "w@b": registered}

    monkeypatch.setattr(Control, "inspect", Workers)
    for registered, code, said in (  # noqa: B007  Workers use it
        (["shop.refund [x]", "shop.look"], 0, "celery.shop  ok     2 workers answer, and have these tasks."),
        (["shop.refund"], 1, "celery.shop  WRONG  2 workers answer, and none has shop.look."),
    ):
        assert await tool_sources._check(here, sources, as_json=False) == code
        assert said in capsys.readouterr().out
