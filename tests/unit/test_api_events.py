"""Watching a run: streams that resume exactly, gaps that are told, and pages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from api.kit.streams import EventStream, Frames
from api.native.frames import frame, frames
from palaver.config.settings import Settings
from palaver.operations import follow
from palaver.steps.leases import Delta
from palaver.store.reading.events import StoredEvent
from tests.unit.api_world import BODY, SETTINGS, LiveRequest, World, assert_problem, events_of, in_one_world, world
from tests.waiting import PATIENCE, aeventually

SSE = {"Accept": "text/event-stream"}
JSON = {"Accept": "application/json"}


async def _finished(api: World, *texts: str) -> dict[str, Any]:
    run = await api.submit()
    lease = await api.claim(run)
    await api.say(lease, *texts)
    await api.finish(run, "".join(texts), lease=lease)
    return run


async def test_a_stream_has_every_event_once_in_order_and_ends() -> None:
    async with world() as api:
        await api.meet_worker()
        run = await _finished(api, "Hel", "lo")
        answer = await api.client.get(run["links"]["events"], headers=SSE)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert 1000 <= int(answer.text.partition("\n")[0].removeprefix("retry: ")) <= 3000
        events = events_of(answer.text)
        assert [number for number, _, _ in events] == [str(n) for n in range(1, len(events) + 1)]
        assert [name for _, name, _ in events] == [
            "run.created", "message.created", "run.started", "step.started", "message.delta", "message.delta",
            "message.created", "run.finished",
        ]  # fmt: skip
        assert [data["text"] for _, name, data in events if name == "message.delta"] == ["Hel", "lo"]
        for number, _, data in events:
            assert (data["run_id"], str(data["seq"])) == (run["id"], number)
            assert data["at"].endswith("Z")
        assert events[-1][2]["status"] == "completed"


async def _thought(api: World) -> dict[str, Any]:
    """A run whose model thought before it answered."""
    run = await api.submit()
    lease = await api.claim(run)
    thoughts = [Delta(lease, "Hm, ", reasoning=True), Delta(lease, "so", reasoning=True)]
    await api.store.steps.write_deltas([*thoughts, Delta(lease, "yes")])
    await api.finish(run, "yes", lease=lease)
    return run


async def test_only_who_asks_is_told_what_the_model_thinks() -> None:
    async with world() as api:
        run = await _thought(api)
        path = run["links"]["events"]
        plain = events_of((await api.client.get(path, headers=SSE)).text)
        asked = events_of((await api.client.get(f"{path}?include=reasoning", headers=SSE)).text)
        assert [data["text"] for _, name, data in asked if name == "reasoning.delta"] == ["Hm, ", "so"]
        assert [event for event in asked if event[1] != "reasoning.delta"] == plain
        assert not any(name == "stream.gap" for _, name, _ in asked)
        page = (await api.client.get(path, headers=JSON)).json()["data"]
        assert page == [data for _, _, data in plain]
        page = (await api.client.get(f"{path}?include=reasoning", headers=JSON)).json()["data"]
        assert page == [data for _, _, data in asked]


async def test_pages_go_on_behind_what_was_not_told() -> None:
    async with world() as api:
        run = await _thought(api)
        path, after, more, seen = run["links"]["events"], 0, True, []
        while more:
            page = (await api.client.get(f"{path}?after={after}&limit=1", headers=JSON)).json()
            seen += page["data"]
            assert page["next_after"] == after + 1
            after, more = page["next_after"], page["has_more"]
        assert seen == (await api.client.get(path, headers=JSON)).json()["data"]


async def test_what_the_model_thinks_is_told_live_and_hidden_live() -> None:
    async with world() as api:
        run = await api.submit()
        asked = LiveRequest(api.app, "GET", run["links"]["events"] + "?include=reasoning")
        plain = LiveRequest(api.app, "GET", run["links"]["events"])
        lease = await api.claim(run)
        await api.store.steps.write_deltas([Delta(lease, "secretly", reasoning=True)])
        await asked.until(lambda body: b"secretly" in body)
        await api.say(lease, "aloud")
        await plain.until(lambda body: b"aloud" in body)
        await api.finish(run, "aloud", lease=lease)
        await asyncio.wait_for(asyncio.gather(asked.task, plain.task), PATIENCE)
        assert b"secretly" not in plain.body


async def test_a_live_stream_shows_events_as_they_come() -> None:
    async with world() as api:
        run = await api.submit()
        live = LiveRequest(api.app, "GET", run["links"]["events"])
        await live.until(lambda body: b"event: message.created" in body)
        lease = await api.claim(run)
        await live.until(lambda body: b"event: step.started" in body)
        await api.say(lease, "Hel")
        await live.until(lambda body: b'"text":"Hel"' in body)
        assert not live.over
        await api.finish(run, lease=lease)
        await asyncio.wait_for(live.task, PATIENCE)
        assert live.over
        assert events_of(live.body.decode())[-1][1] == "run.finished"
        await aeventually(api.unwatched)


@pytest.mark.parametrize("by", ["header", "query", "both"])
async def test_a_stream_resumes_with_exactly_the_rest(by: str) -> None:
    async with world() as api:
        run = await _finished(api, "a", "b", "c")
        whole = events_of((await api.client.get(run["links"]["events"])).text)
        for seen in range(len(whole)):
            headers = {"Last-Event-ID": str(seen)} if by != "query" else {}
            query = {"query": f"?after={seen}", "both": "?after=1", "header": ""}[by]
            answer = await api.client.get(run["links"]["events"] + query, headers=headers)
            assert events_of(answer.text) == whole[seen:]


async def test_a_stream_whose_end_was_seen_tells_browsers_to_stop() -> None:
    async with world() as api:
        run = await _finished(api)
        last = (await api.read(run))["last_event_id"]
        answer = await api.client.get(run["links"]["events"], headers={"Last-Event-ID": str(last)})
        assert (answer.status_code, answer.content) == (204, b"")


async def test_a_resume_at_the_newest_event_of_a_live_run_waits_for_the_next() -> None:
    async with world() as api:
        run = await api.submit()
        last = run["last_event_id"]
        live = LiveRequest(api.app, "GET", f"{run['links']['events']}?after={last}")
        await aeventually(api.watched)
        await api.finish(run)
        await asyncio.wait_for(live.task, PATIENCE)
        assert next(number for number, _, _ in events_of(live.body.decode())) == str(last + 1)


@in_one_world(["x", "-1", "1.5", "", "1e3", "9" * 30, "\u0665", "run_1:5"])
async def test_a_last_event_id_that_is_none_is_refused(api: World, given: str) -> None:
    run = await _finished(api)
    answer = await api.client.get(run["links"]["events"], headers={b"Last-Event-ID": given.encode()})
    assert_problem(answer, 400, "invalid_cursor")


async def test_a_place_behind_the_last_event_is_refused() -> None:
    async with world() as api:
        run = await _finished(api)
        ahead = (await api.read(run))["last_event_id"] + 1
        for headers, query in (({"Last-Event-ID": str(ahead)}, ""), ({}, f"?after={ahead}")):
            answer = await api.client.get(run["links"]["events"] + query, headers=headers)
            assert assert_problem(answer, 400, "invalid_cursor")["run_id"] == run["id"]


async def test_events_that_are_gone_are_told_as_gaps() -> None:
    async with world() as api:
        run = await _finished(api, "a", "b", "c")
        whole = events_of((await api.client.get(run["links"]["events"])).text)
        await api.redis.delete(f"{{p00}}:feed:{run['id']}")
        rest = events_of((await api.client.get(run["links"]["events"])).text)
        durable = [event for event in rest if event[1] not in ("stream.gap", "message.delta")]
        assert [event for event in whole if event in durable] == durable
        assert [name for _, name, _ in durable][-1] == "run.finished"
        assert [data["text"] for _, name, data in rest if name == "message.delta"] == ["abc"]
        covered = {int(number) for number, _, _ in rest if number}
        for number, name, data in rest:
            if name == "stream.gap":
                assert number is None
                covered |= set(range(data["first"], data["last"] + 1))
        assert covered == set(range(1, len(whole) + 1))
        gaps = [data for _, name, data in rest if name == "stream.gap"]
        assert gaps
        resumed = await api.client.get(f"{run['links']['events']}?after={gaps[-1]['first']}")
        assert events_of(resumed.text)[-1] == whole[-1]


async def test_a_client_that_goes_frees_its_watcher() -> None:
    async with world() as api:
        run = await api.submit()
        streams = [LiveRequest(api.app, "GET", run["links"]["events"]) for _ in range(5)]
        for live in streams:
            await live.until(lambda body: b"message.created" in body)
        assert await api.watched() == 1
        for live in streams:
            live.disconnect()
            await asyncio.wait_for(live.task, PATIENCE)
        await aeventually(api.unwatched)


async def test_a_stream_ends_even_if_what_it_reads_from_swallows_a_cancel() -> None:
    async def deaf() -> AsyncGenerator[bytes, None]:
        with contextlib.suppress(asyncio.CancelledError):
            yield b": begun\n\n"
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    live = LiveRequest(EventStream(deaf(), asyncio.Event()), "GET", "/")
    await live.until(lambda body: b"begun" in body)
    live.disconnect()
    await asyncio.wait_for(live.task, PATIENCE)
    assert live.over


async def test_streams_end_when_the_process_is_told_to() -> None:
    async with world() as api:
        run = await api.submit()
        live = LiveRequest(api.app, "GET", run["links"]["events"])
        await live.until(lambda body: b"message.created" in body)
        api.app.state.backend.closing.set()
        await asyncio.wait_for(live.task, PATIENCE)
        assert live.over
        assert b"run.finished" not in live.body


async def test_a_quiet_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.store.reading.feeds.IDLE", 0.05)
    async with world() as api:
        run = await api.submit()
        live = LiveRequest(api.app, "GET", run["links"]["events"])
        await live.until(lambda body: body.count(b"\n: keep-alive\n") >= 2)
        await api.finish(run)
        await asyncio.wait_for(live.task, PATIENCE)
        assert events_of(live.body.decode())[-1][1] == "run.finished"


async def test_a_stream_goes_on_when_redis_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.store.reading.feeds.IDLE", 0.05)
    monkeypatch.setattr("palaver.store.reading.feeds.AWAY", 0.05)
    async with world() as api:
        run = await api.submit()
        live = LiveRequest(api.app, "GET", run["links"]["events"])
        await live.until(lambda body: b"message.created" in body)
        api.server.connected = False
        silent = live.body.count(b"\n: keep-alive\n")
        await live.until(lambda body: body.count(b"\n: keep-alive\n") >= silent + 5)
        api.server.connected = True
        await api.finish(run)
        await asyncio.wait_for(live.task, PATIENCE)
        numbers = [int(number or 0) for number, _, _ in events_of(live.body.decode())]
        assert numbers == list(range(1, numbers[-1] + 1))
        assert events_of(live.body.decode())[-1][1] == "run.finished"


async def test_a_stream_outlives_a_store_that_is_away_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.store.reading.feeds.AWAY", 0.05)
    async with world() as api:
        run = await _finished(api)
        api.server.connected = False
        stream = frames(follow(api.app.state.backend, run["id"]))
        pieces = [await anext(stream), await anext(stream)]
        api.server.connected = True
        pieces += [piece async for piece in stream]
        assert pieces[1] == b": keep-alive\n\n"
        assert events_of(b"".join(pieces).decode())[-1][1] == "run.finished"


async def test_an_event_is_encoded_once_for_all_its_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []

    def counted(event: StoredEvent) -> bytes:
        encoded.append(event.seq)
        return frame(event)

    monkeypatch.setattr("api.native.frames._shared", Frames(counted))
    async with world() as api:
        run = await api.submit()
        streams = [LiveRequest(api.app, "GET", run["links"]["events"]) for _ in range(50)]
        for live in streams:
            await live.until(lambda body: b"message.created" in body)
        lease = await api.claim(run)
        # One delta: of two, a watcher that is slow has one event.
        await api.say(lease, "Hello")
        await api.finish(run, lease=lease)
        for live in streams:
            await asyncio.wait_for(live.task, PATIENCE)
        assert len({live.body.partition(b"\n\n")[2] for live in streams}) == 1
        last = (await api.read(run))["last_event_id"]
        # Whether it came live or in a page, of which there are some if the watchers come up at different moments.
        assert sorted(encoded) == list(range(1, last + 1))


async def test_one_key_does_not_take_all_places_of_watchers() -> None:
    keys = Settings(api_keys="ann=a-key-of-ann-0123456789,bob=a-key-of-bob-0123456789").api_keys
    ann, bob = ({"Authorization": f"Bearer a-key-of-{name}-0123456789"} for name in ("ann", "bob"))
    limited = {"max_watchers": 3, "max_watchers_per_key": 2, "api_keys": keys}
    async with world(SETTINGS.model_copy(update=limited)) as api:
        api.client.headers.update(ann)
        run = await api.submit()
        streams = [LiveRequest(api.app, "GET", run["links"]["events"], headers=ann) for _ in range(2)]
        for live in streams:
            await live.until(lambda body: b"message.created" in body)
        refused = await api.client.get(run["links"]["events"], headers=SSE)
        assert_problem(refused, 503, "too_many_watchers")
        assert "ann" in refused.json()["detail"]
        assert "PALAVER_MAX_WATCHERS_PER_KEY" in refused.json()["detail"]
        streams.append(LiveRequest(api.app, "GET", run["links"]["events"], headers=bob))
        await streams[-1].until(lambda body: b"message.created" in body)
        refused = await api.client.get(run["links"]["events"], headers={**SSE, **bob})
        assert "(PALAVER_MAX_WATCHERS)" in refused.json()["detail"]
        await api.finish(run)
        for live in streams:
            await asyncio.wait_for(live.task, PATIENCE)
        assert not api.store.feeds.watching_for


async def test_watchers_beyond_the_limit_are_refused_before_anything_begins() -> None:
    async with world(SETTINGS.model_copy(update={"max_watchers": 2})) as api:
        run = await api.submit()
        streams = [LiveRequest(api.app, "GET", run["links"]["events"]) for _ in range(2)]
        for live in streams:
            await live.until(lambda body: b"message.created" in body)
        for refused in (
            await api.client.get(run["links"]["events"], headers=SSE),
            await api.client.get(f"{run['links']['self']}?wait=30"),
            await api.client.post("/v1/runs", json=BODY, headers=SSE),
        ):
            assert_problem(refused, 503, "too_many_watchers")
            assert int(refused.headers["retry-after"]) > 0
        assert len((await api.client.get("/v1/runs")).json()["data"]) == 1
        # What needs no waiting is answered, and what was taken on is not refused.
        assert (await api.client.get(run["links"]["self"])).status_code == 200
        submitted = await api.client.post("/v1/runs", json=BODY, headers={"Prefer": "wait=30"})
        assert (submitted.status_code, "preference-applied" in submitted.headers) == (202, False)
        streams[0].disconnect()
        await asyncio.wait_for(streams[0].task, PATIENCE)
        await api.finish(run)
        assert (await api.client.get(run["links"]["events"], headers=SSE)).status_code == 200


async def test_pages_and_pieces_of_large_events_are_short() -> None:
    async with world() as api:
        run = await api.submit()
        lease = await api.claim(run)
        await api.say(lease, *("a" * 300_000 for _ in range(20)))
        await api.finish(run, lease=lease)
        answer = await api.client.get(f"{run['links']['events']}?limit=1000", headers={"Accept": "application/json"})
        assert answer.json()["has_more"]
        assert 0 < len(answer.json()["data"]) < 10
        pieces = [piece async for piece in frames(follow(api.app.state.backend, run["id"]))]
        assert max(map(len, pieces)) < 1_500_000
        assert b"".join(pieces).count(b"event: message.delta") == 20


@pytest.mark.slow
async def test_a_long_history_comes_whole() -> None:
    async with world() as api:
        run = await _finished(api, *(str(n) for n in range(1200)))
        events = events_of((await api.client.get(run["links"]["events"])).text)
        assert [data["text"] for _, name, data in events if name == "message.delta"] == [str(n) for n in range(1200)]


async def test_pages_show_every_event_once() -> None:
    async with world() as api:
        run = await _finished(api, "a", "b", "c")
        after, more, seen = 0, True, []
        while more:
            answer = await api.client.get(
                f"{run['links']['events']}?after={after}&limit=3", headers={"Accept": "application/json"}
            )
            page = answer.json()
            seen += page["data"]
            after, more = page["next_after"], page["has_more"]
        assert [event["seq"] for event in seen] == list(range(1, after + 1))
        assert seen[-1]["type"] == "run.finished"
        assert seen[-1]["status"] == "completed"


async def test_a_page_of_a_live_run_says_where_to_go_on() -> None:
    async with world(SETTINGS) as api:
        run = await api.submit()
        headers = {"Accept": "application/json"}
        page = (await api.client.get(run["links"]["events"], headers=headers)).json()
        assert (page["has_more"], page["next_after"]) == (False, run["last_event_id"])
        path = f"{run['links']['events']}?after={page['next_after']}"
        empty = (await api.client.get(path, headers=headers)).json()
        assert empty == {"data": [], "next_after": page["next_after"], "has_more": False}
