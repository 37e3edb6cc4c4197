"""What the store has for traces: a record for each attempt that is over, and one for the run, whoever ends them."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

import orjson
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from features.tracing import names, tracing_keys
from features.tracing.content import content_of
from features.tracing.otlp import empty_request, spans_of
from features.tracing.outbox import SpanOutbox
from features.tracing.records import EndedAttempt, Record, read
from features.tracing.sender import SpanSender
from features.tracing.spans import add_spans
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure
from palaver.processes.tasks import end
from palaver.schemas.models import Message
from palaver.steps.verdicts import Finish
from palaver.store import Store
from palaver.store.redis import keys
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import limit_of
from tests.contract.store_driver import StoreDriver, approve
from tests.process.otlp import Span, decoded
from tests.waiting import PATIENCE, aeventually

CANARY = "canary-k2"
_MISSHAPEN = (
    b"[]",
    b'{"usage":3}',
    b'{"usage":[{},0,0,0,0]}',
    b'{"error":[]}',
    b'{"first_token":[]}',
    b'{"inline":[["c1","send",1e20,1,null]]}',
)
"""What no worker says of an attempt."""


async def _records(driver: StoreDriver) -> list[Record]:
    return [read(fields) for _, fields in await driver.store.part(SpanOutbox).read("00", 1000)]


async def _outcomes(driver: StoreDriver) -> list[tuple[str, str]]:
    """Of each record the step and the outcome, or what the run ended as."""
    return [
        (each.step, each.outcome) if isinstance(each, EndedAttempt) else ("", each.status)
        for each in await _records(driver)
    ]


async def _spans(driver: StoreDriver) -> list[Span]:
    made = spans_of(empty_request({}, "palaver", "1"))
    for record in await _records(driver):
        add_spans(made, record, {})
    return [decoded(span) for span in made]


async def test_a_run_whose_answer_was_withheld_did_not_fail(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    withheld = Failure.of(ErrorClass.CONTENT_FILTER)
    await driver.store.steps.settle(lease, Finish(None, StopReason.CONTENT_FILTER, withheld=withheld))
    root = (await _spans(driver))[-1]
    assert root.attributes[names.STOP_REASON] == "content_filter"
    assert not {names.CODE, names.ERROR} & root.attributes.keys()


async def test_each_attempt_is_recorded_once_however_it_ends(driver: StoreDriver) -> None:
    _, lease = await driver.begin()
    (delivery,) = (await driver.retry(lease, delay=0)).deliveries
    (moved,) = await driver.lose(await driver.claim(delivery))
    lease = await driver.claim(moved.deliveries[0])
    (delivery,) = (await driver.hand_back(lease)).deliveries
    await driver.finish(await driver.claim(delivery))
    assert await _outcomes(driver) == [
        ("1", "retry"), ("1", "lost"), ("1", "handed_back"), ("1", "finish"), ("", "completed"),
    ]  # fmt: skip
    made = await _spans(driver)
    assert len({span.span_id for span in made}) == 5
    assert [span.said for span in made] == ["", "worker lost", "", "", ""]


async def test_a_lost_answer_records_nothing_twice(driver: StoreDriver) -> None:
    with driver.answers_get_lost():
        _, lease = await driver.begin()
        await driver.finish(lease)
    assert await _outcomes(driver) == [("1", "finish"), ("", "completed")]


async def test_what_waits_and_was_not_tried_is_no_span(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    await driver.postpone(lease)
    await driver.store.runs.cancel(run_id)
    (root,) = await _spans(driver)
    assert [name for name, _ in root.events] == ["run.started", "run.waiting", "run.cancelling"]
    assert dict(root.events[1][1]) == {
        "palaver.step": "1", "palaver.reason": "provider_cooldown", "palaver.code": "cooldown", "palaver.delay": 60.0,
    }  # fmt: skip


async def test_a_step_whose_run_ends_under_it_is_recorded(driver: StoreDriver) -> None:
    run_id, _ = await driver.begin()
    await driver.redis.hset(keys.run(run_id), "deadline", 1)
    await driver.hasten(run_id, "end")
    assert await _outcomes(driver) == [("1", "run_ended"), ("", "expired")]


async def test_approvals_are_events_without_what_is_asked(driver: StoreDriver) -> None:
    run_id, _ = await driver.turn("c1", approval=["c1"])
    await driver.act(run_id, approve())
    await driver.store.runs.cancel(run_id, reason=CANARY)
    root = (await _spans(driver))[-1]
    said = {name: dict(attributes) for name, attributes in root.events}
    assert said["action.required"] == {
        "palaver.step": "1/c1", "palaver.action.type": "approval", "palaver.action.tool": "calculator",
    }  # fmt: skip
    assert said["action.resolved"] == {"palaver.call_id": "c1", "palaver.decision": "approve"}
    assert CANARY not in str(root)


async def test_events_of_a_run_are_bounded(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin()
    for _ in range(limit_of("span_events") + 10):
        await driver.postpone(lease, 60)
        (moved,) = await driver.hasten(run_id, "1")
        lease = await driver.claim(moved.deliveries[0])
    await driver.finish(lease)
    assert len((await _spans(driver))[-1].events) == limit_of("span_events")


async def test_content_is_that_of_the_attempt(driver: StoreDriver) -> None:
    _, lease = await driver.begin(input=f"{CANARY} one")
    (delivery,) = await driver.ask(lease, "c1")
    (delivery,) = (await driver.answer(await driver.claim(delivery), "forty-two")).deliveries
    lease = await driver.claim(delivery)
    await driver.store.steps.settle(lease, Finish(Message(role="assistant", content="bye"), StopReason.END_TURN))
    first, tool, second, root = [
        await content_of(each, driver.store.part(SpanOutbox)) for each in await _records(driver)
    ]
    user = {"role": "user", "parts": [{"type": "text", "content": f"{CANARY} one"}]}
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "bye"}]}
    assert orjson.loads(first[names.INPUT_MESSAGES]) == [user]
    assert [part["type"] for part in orjson.loads(first[names.OUTPUT_MESSAGES])[0]["parts"]] == ["text", "tool_call"]
    assert tool == {names.ARGUMENTS: '{"x": 1}', names.RESULT: "forty-two"}
    result = {"type": "tool_call_response", "id": "c1", "response": "forty-two"}
    assert orjson.loads(second[names.INPUT_MESSAGES]) == [{"role": "tool", "parts": [result]}], "what is new"
    assert orjson.loads(second[names.OUTPUT_MESSAGES]) == [answer]
    assert (orjson.loads(root[names.INPUT_MESSAGES]), orjson.loads(root[names.OUTPUT_MESSAGES])) == ([user], [answer])


async def test_content_is_cut_and_what_was_deleted_is_in_no_trace(driver: StoreDriver) -> None:
    run_id, lease = await driver.begin(input="x" * 100_000)
    await driver.finish(lease)
    records = await _records(driver)
    assert len((await content_of(records[0], driver.store.part(SpanOutbox)))[names.INPUT_MESSAGES]) == limit_of(
        "span_content"
    )
    await driver.store.control.delete_run(run_id)
    assert [await content_of(each, driver.store.part(SpanOutbox)) for each in records] == [{}, {}]


async def test_one_worker_sends_at_a_time(driver: StoreDriver) -> None:
    outbox = driver.store.part(SpanOutbox)
    assert await outbox.hold("00", "one")
    assert await outbox.hold("00", "one")
    assert not await outbox.hold("00", "other")
    await outbox.release("00", "other")
    assert not await outbox.hold("00", "other")
    await outbox.release("00", "one")
    assert await outbox.hold("00", "other")
    await outbox.release("00", "other")


async def test_a_record_of_a_newer_version_does_not_hold_others_up(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    _, lease = await driver.begin()
    await driver.finish(lease)
    records = await driver.store.part(SpanOutbox).read("00", 10)
    sender = SpanSender(driver.store.part(SpanOutbox), "w1", content=False)
    of_attempt = records[0][1][b"attempt"]
    later = [
        {b"later": of_attempt},
        {b"attempt": b"later"},
        *({b"attempt": of_attempt[: of_attempt.rindex(b"\n") + 1] + told} for told in _MISSHAPEN),
    ]
    taken, made = await sender._spans([*((b"0-1", fields) for fields in later), *records])
    assert (len(taken), len(spans_of(made))) == (len(later) + 2, 2)


async def test_what_another_worker_sends_meanwhile_is_not_sent_twice(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    _, lease = await driver.begin()
    await driver.finish(lease)
    (_, fields), *_ = await driver.store.part(SpanOutbox).read("00", 10)
    outbox = Store(driver.redis, Settings(redis_url="redis://127.0.0.1:1/0", shards=3)).part(SpanOutbox)
    first, second = outbox.shards = outbox.shards[1:]
    for shard in (first, second):
        await driver.redis.xadd(tracing_keys.spans(shard), fields)
        await driver.redis.expire(tracing_keys.spans(shard), 600)
    sender, asked, answers = SpanSender(outbox, "one", content=False), 0, threading.Event()

    def send(_: ExportTraceServiceRequest) -> bool:
        nonlocal asked
        asked += 1
        return answers.wait(60)

    monkeypatch.setattr(sender._exporter, "send", send)

    async def sent() -> bool:
        return not await outbox.read(first, 10)

    sending = asyncio.create_task(sender.run())
    try:
        await aeventually(lambda: asked == 1)
        # What this worker held of other shards has run out by the time that the collector answers.
        await driver.redis.set(tracing_keys.sender(second), "other", ex=600)
        answers.set()
        await aeventually(sent)
        await driver.redis.xadd(tracing_keys.spans(first), fields)
        await aeventually(sent)
        assert (asked, len(await outbox.read(second, 10))) == (2, 1)
    finally:
        answers.set()
        await end(sending)
        await outbox.release(second, "other")


async def test_a_collector_that_never_answers_is_waited_for_no_longer_than_the_environment_says(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
        sender = SpanSender(driver.store.part(SpanOutbox), "w1", content=False)
        async with asyncio.timeout(PATIENCE):
            assert not await sender._send_some("00")
    assert len(await driver.store.part(SpanOutbox).read("00", 10)) == 2, "they wait"
    await driver.store.part(SpanOutbox).release("00", "w1")


async def test_what_a_collector_says_without_end_is_not_listened_to(
    driver: StoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, lease = await driver.begin()
    await driver.finish(lease)
    with socket.create_server(("127.0.0.1", 0)) as talkative:
        talking = threading.Thread(target=_talk_without_end, args=(talkative,))
        talking.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{talkative.getsockname()[1]}")
        sender = SpanSender(driver.store.part(SpanOutbox), "w1", content=False)
        _, made = await sender._spans(await driver.store.part(SpanOutbox).read("00", 10))
        async with asyncio.timeout(PATIENCE):
            assert await sender._sent("00", made)
        talking.join(60)
        assert not talking.is_alive(), "nobody is there any more"
    await driver.store.part(SpanOutbox).release("00", "w1")


def _talk_without_end(server: socket.socket) -> None:
    asking, _ = server.accept()
    with asking, suppress(ConnectionError):
        asking.recv(1 << 16)
        asking.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            asking.sendall(b"x" * 1024)
