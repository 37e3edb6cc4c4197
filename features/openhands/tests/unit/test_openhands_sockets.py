"""What a client of OpenHands is told by its socket, on a real server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from api.http.sockets import text_frame
from features.openhands import OPENHANDS, conversations, followers, sockets
from features.openhands.events import Writer
from features.openhands.shared_events import shared_delta
from features.openhands.snapshot import load_snapshot
from features.openhands.state import Generation
from features.openhands.tests.unit.test_openhands_agents import AGENT
from features.openhands.tests.unit.test_openhands_api import PREFIX, Talk, begin
from palaver import operations
from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure, StoreUnavailable
from palaver.steps.leases import Delta
from palaver.steps.verdicts import RetryAfter
from tests.unit.api_world import SETTINGS
from tests.unit.test_api_sockets import GUARDED, serving
from tests.unit.test_api_written import _delta
from tests.waiting import PATIENCE, aeventually


class Listener:
    """What hears a conversation."""

    def __init__(self, socket: ClientConnection, talk: Talk) -> None:
        self.talk = talk
        self.url = f"ws://{socket.remote_address[0]}:{socket.remote_address[1]}/openhands/sockets/events/{talk.id}"
        self.heard: list[str] = []
        """A word for each event: the status that a state has, or else its kind."""
        self._socket = socket

    async def until(self, enough: Callable[[list[str]], object]) -> list[str]:
        """What was heard, once it is enough."""
        while not enough(self.heard):
            self.heard.append(_word(orjson.loads(await asyncio.wait_for(self._socket.recv(), PATIENCE))))
        return self.heard

    async def leave(self) -> None:
        """Hear no more."""
        await self._socket.close()

    async def code(self) -> int | None:
        """With which the socket was closed, once it is."""
        await asyncio.wait_for(self._socket.wait_closed(), PATIENCE)
        return self._socket.close_code


def _word(event: dict[str, Any]) -> str:
    match event:
        case {"key": "full_state", "value": {"execution_status": status}}:
            return f"full {status}"
        case {"key": "execution_status", "value": status}:
            return str(status)
        case {"kind": "StreamingDeltaEvent"}:
            return str(event.get("content") or event["reasoning_content"])
        case _:
            return str(event["kind"])


@asynccontextmanager
async def listening(prepare: Callable[[Talk], Any] | None = None, **fields: Any) -> AsyncIterator[Listener]:
    """To a conversation, after something was done with it."""
    async with serving(SETTINGS, OPENHANDS) as served:
        await served.api.meet_worker()
        talk = await begin(served.api, **fields)
        if prepare is not None:
            await prepare(talk)
        async with connect(f"{served.url}/openhands/sockets/events/{talk.id}", proxy=None) as socket:
            listener = Listener(socket, talk)
            await listener.until(len)
            yield listener


async def _listener(stack: AsyncExitStack, url: str, talk: Talk) -> Listener:
    """One more, that has heard how things are."""
    listener = Listener(await stack.enter_async_context(connect(url, proxy=None)), talk)
    await listener.until(len)
    return listener


async def _finish(talk: Talk) -> None:
    await talk.say(run=True)
    await talk.api.finish(await talk.run())


async def test_a_stop_does_not_end_the_run_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as listener:
        talk, behind = listener.talk, asyncio.Event()

        async def late(*given: Any) -> Any:
            await behind.wait()
            return await load_snapshot(*given)

        monkeypatch.setattr(sockets, "load_snapshot", late)
        await _finish(talk)
        await listener.until(lambda heard: heard[-1] == "finished")
        await talk.say(run=True)
        behind.set()
        heard = await listener.until(lambda heard: heard.count("running") == 2)
        assert heard[heard.index("finished") :].count("full finished") == 0, heard


@pytest.mark.slow
async def test_a_stop_is_told_again_as_clients_listen_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_AGAIN", (0.01, 0.01))
    async with listening(_finish) as listener:
        await listener.talk.ask("POST", "/run")
        await listener.until(lambda heard: heard.count("full finished") == 4)
        await _finish(listener.talk)
        await listener.until(lambda heard: heard.count("full finished") == 7)


async def test_from_the_request_to_its_end_no_state_says_that_a_run_has_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "_AGAIN", (0.01, 0.01))
    async with listening() as listener:
        talk = listener.talk
        await talk.say(run=True)
        run = await talk.run()
        failure = Failure.of(ErrorClass.PROVIDER_ERROR)
        # It waits for another attempt, and is changed beside that.
        await talk.api.store.steps.settle(await talk.api.claim(run), RetryAfter(60.0, failure, 5))
        await talk.ask("PATCH", "", {"title": "another"})
        await listener.until(lambda heard: "full running" in heard)
        await talk.api.store.runs.cancel(run["id"])
        heard = await listener.until(lambda heard: "full idle" in heard[1:])
        assert heard == [
            *("full idle", "SystemPromptEvent", "MessageEvent", "running", "full running", "idle", "full idle")
        ]


@pytest.mark.slow
async def test_who_waits_for_what_is_deleted_is_told_of_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_AGAIN", (0.01, 0.01))
    async with listening() as listener:
        talk = listener.talk
        await talk.say(run=True)
        lease = await talk.api.claim(await talk.run())
        monkeypatch.setattr(conversations, "_LETTING_GO", 0.05)
        await talk.ask("DELETE", status=409)
        await talk.api.finish(await talk.run(), lease=lease)
        assert await talk.status() == "deleting"
        await listener.until(lambda heard: heard[-1] == "idle")
        # It was not deleted after all, and is run again.
        await talk.say(run=True)
        assert await talk.status() == "running"
        await talk.api.finish(await talk.run())
        heard = await listener.until(lambda heard: heard[-1] == "full finished")
        assert [each for each in heard[1:] if "full" in each and each != "full running"] == ["full finished"], heard
        await talk.ask("DELETE")
        assert await listener.code() == 4004


async def test_words_make_idle_what_has_finished() -> None:
    async with listening(_finish) as listener:
        await listener.talk.say()
        heard = await listener.until(lambda heard: heard[-1] == "MessageEvent")
        assert heard[-2:] == ["idle", "MessageEvent"]


def _slowly(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for each event that sockets were sent, slowly; answers wait for that however long it takes."""
    send, sent = sockets._send, list[str]()

    async def slowly(socket: Any, event: dict[str, Any]) -> None:
        await asyncio.sleep(0.02)
        await send(socket, event)
        sent.append(_word(event))

    monkeypatch.setattr(sockets, "_send", slowly)
    monkeypatch.setattr(sockets, "_AGAIN", ())
    monkeypatch.setattr(followers, "_WAIT", 20.0)
    return sent


async def test_sockets_are_told_before_who_changes_the_state_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = _slowly(monkeypatch)
    async with listening(_finish) as listener:
        talk = listener.talk
        await talk.say()
        assert sent[-2:] == ["idle", "MessageEvent"]
        await talk.ask("POST", "/pause")
        assert sent[-1] == "full paused"
        await talk.ask("POST", "/confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}})
        assert sent.count("full paused") == 2


async def test_older_clients_read_no_status_before_their_sockets_were_told_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = _slowly(monkeypatch)
    async with serving(SETTINGS, OPENHANDS) as served:
        # Without the fields that newer clients send.
        answer = await served.api.client.post(PREFIX, json={"agent": AGENT})
        talk = Talk(served.api, answer.json()["id"])
        async with connect(f"{served.url}/openhands/sockets/events/{talk.id}", proxy=None) as socket:
            await Listener(socket, talk).until(len)
            await _finish(talk)
            assert await talk.status() == "finished"
            assert sent[-1] == "full finished"


async def test_words_that_were_answered_before_an_older_client_came_make_nothing_idle() -> None:
    async with serving(SETTINGS, OPENHANDS) as served:
        answer = await served.api.client.post(PREFIX, json={"agent": AGENT})
        talk = Talk(served.api, answer.json()["id"])
        await _finish(talk)
        async with connect(f"{served.url}/openhands/sockets/events/{talk.id}", proxy=None) as socket:
            heard = await Listener(socket, talk).until(lambda heard: heard[-1:] == ["finished"])
            assert "MessageEvent" in heard
            assert "idle" not in heard, heard


async def test_who_takes_nothing_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "_WAIT", 0.02)
    async with listening() as listener:

        async def never(*given: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(sockets, "_send", never)
        await asyncio.wait_for(listener.talk.say(), PATIENCE)
        # Nor does who has gone.
        monkeypatch.setattr(followers, "_WAIT", 60.0)
        await listener.leave()
        await asyncio.wait_for(listener.talk.say(), PATIENCE)


async def test_a_pause_is_told_where_nothing_runs() -> None:
    async with listening() as listener:
        await listener.talk.ask("POST", "/pause")
        assert await listener.until(lambda heard: "full paused" in heard) == ["full idle", "full paused"]


async def test_while_the_store_is_away_there_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as listener:

        async def away(*given: Any) -> Any:
            monkeypatch.setattr(sockets, "load_snapshot", load_snapshot)
            raise StoreUnavailable

        monkeypatch.setattr(sockets, "load_snapshot", away)
        await _finish(listener.talk)
        await listener.until(lambda heard: heard[-1] == "full finished")


@pytest.mark.slow
async def test_a_failure_that_a_later_run_has_overtaken_does_not_end_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening() as listener:
        talk, behind = listener.talk, asyncio.Event()

        async def late(*given: Any) -> Any:
            await behind.wait()
            return await load_snapshot(*given)

        monkeypatch.setattr(sockets, "load_snapshot", late)
        await talk.say(run=True)
        await talk.api.fail(await talk.run())
        await listener.until(lambda heard: heard[-1] == "ConversationErrorEvent")
        await talk.ask("POST", "/run")
        behind.set()
        heard = await listener.until(lambda heard: heard.count("running") == 3)
        assert "error" not in heard, heard
        assert "full error" not in heard, heard
    # Whose client has begun nothing since is told.
    async with listening() as listener:
        await listener.talk.say(run=True)
        await listener.talk.api.fail(await listener.talk.run())
        await listener.until(lambda heard: "error" in heard and "full error" in heard)


@pytest.mark.slow
async def test_sockets_of_a_conversation_share_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_AGAIN", ())
    async with listening() as listener:
        talk, reads = listener.talk, list[str]()
        watched, many = talk.api.store.runs, 8

        def counting(name: str) -> Callable[..., Any]:
            read = getattr(watched, name)

            def counted(*given: Any, **named: Any) -> Any:
                reads.append(name)
                return read(*given, **named)

            return counted

        for name in ("glance", "pages", "conversation"):
            monkeypatch.setattr(watched, name, counting(name))
        async with AsyncExitStack() as stack:
            others = [await _listener(stack, listener.url, talk) for _ in range(many)]
            reads.clear()
            await _finish(talk)
            for other in (listener, *others):
                await other.until(lambda heard: "full finished" in heard)
            # Each of a dozen events is news, and news that come meanwhile are read for once more.
            assert Counter(reads)["pages"] < 4 * many, reads
            assert Counter(reads)["conversation"] < 4 * many, reads
            assert {tuple(each for each in other.heard if "full" not in each) for other in others} == {
                ("SystemPromptEvent", "MessageEvent", "running", "MessageEvent", "finished")
            }


@pytest.mark.slow
async def test_what_all_sockets_of_a_conversation_are_told_is_written_and_framed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, write = Counter[int](), Writer.of
    framed, frame = Counter[bytes](), text_frame

    def counting(writer: Writer, entry: Any) -> Any:
        written[entry.position] += 1
        return write(writer, entry)

    def framing(text: bytes) -> bytes:
        framed[text] += 1
        return frame(text)

    monkeypatch.setattr(Writer, "of", counting)
    monkeypatch.setattr("features.openhands.shared_events.text_frame", framing)
    async with listening() as listener, AsyncExitStack() as stack:
        others = [await _listener(stack, listener.url, listener.talk) for _ in range(8)]
        written.clear()
        await _finish(listener.talk)
        for each in (listener, *others):
            await each.until(lambda heard: "full finished" in heard)
        assert written
        # By a socket that is behind once more.
        assert max(written.values()) <= 2, written
        assert framed
        assert max(framed.values()) <= 2, framed


async def test_sockets_that_come_together_share_what_they_read_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, may_go_on = list[UUID](), asyncio.Event()

    async def load(backend: Any, number: UUID) -> Any:
        loaded.append(number)
        await may_go_on.wait()
        return await load_snapshot(backend, number)

    async with serving(SETTINGS, OPENHANDS) as served, AsyncExitStack() as stack:
        talk = await begin(served.api)
        monkeypatch.setattr(sockets, "load_snapshot", load)
        url = f"{served.url}/openhands/sockets/events/{talk.id}"
        together = [await stack.enter_async_context(connect(url, proxy=None)) for _ in range(8)]
        await aeventually(lambda: served.api.store.feeds.watching == 8)
        may_go_on.set()
        for socket in together:
            await Listener(socket, talk).until(len)
    assert len(loaded) <= 2, loaded


@pytest.mark.slow
async def test_what_the_model_says_is_told_as_it_says_it_to_who_wants_to_know() -> None:
    for stream, expected in (
        (True, ["Hm", "It", " is", "MessageEvent", "finished"]),
        (False, ["MessageEvent", "finished"]),
    ):
        agent = {**AGENT, "llm": {**AGENT["llm"], "stream": stream}}
        async with listening(agent=agent) as listener:
            talk = listener.talk
            await talk.say(run=True)
            run = await talk.run()
            lease = await talk.api.claim(run)
            await talk.api.store.steps.write_deltas([Delta(lease, "Hm", reasoning=True), Delta(lease, "It")])
            if stream:
                await listener.until(lambda heard: heard[-1] == "It")
            await talk.api.store.steps.write_deltas([Delta(lease, " is")])
            await talk.api.finish(run, "It is", lease=lease)
            heard = await listener.until(lambda heard: heard[-1] == "full finished")
            assert [each for each in heard if "full" not in each][3:] == expected
            assert "StreamingDeltaEvent" not in {event["kind"] for event in await talk.events()}


async def test_after_a_restart_older_clients_are_told_what_the_slowest_has_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "_CONNECTING", timedelta(0))
    monkeypatch.setattr(sockets, "_AGAIN", ())
    send, slow, ended = sockets._send, list[Any](), asyncio.Event()

    async def delayed(socket: Any, event: dict[str, Any]) -> None:
        slow[:] = slow or [socket]
        if socket is slow[0] and event["kind"] == "MessageEvent":
            await ended.wait()
        await send(socket, event)

    monkeypatch.setattr(sockets, "_send", delayed)
    async with serving(SETTINGS, OPENHANDS) as served:
        # Without the fields that newer clients send.
        answer = await served.api.client.post(PREFIX, json={"agent": AGENT})
        talk = Talk(served.api, answer.json()["id"])
        url = f"{served.url}/openhands/sockets/events/{talk.id}"
        backend = served.api.app.state.backend
        closing, kept = backend.closing, operations.conversation_of(backend, UUID(talk.id))
        async with AsyncExitStack() as stack:
            one, other = [await _listener(stack, url, talk) for _ in range(2)]
            await _finish(talk)
            await other.until(lambda heard: "finished" in heard)
            before = (await served.api.client.get(f"/v1/conversations/{kept}")).json()
            closing.set()
            assert [await each.code() for each in (one, other)] == [1001, 1001]
        closing.clear()
        ended.set()
        # That they have gone is no change of the conversation.
        assert (await served.api.client.get(f"/v1/conversations/{kept}")).json() == before
        async with AsyncExitStack() as stack:
            again = await _listener(stack, url, talk)
            heard = await again.until(lambda heard: "finished" in heard)
            assert heard.count("MessageEvent") == 2, heard


async def test_what_is_no_uuid_is_no_conversation() -> None:
    async with serving(SETTINGS, OPENHANDS) as served:
        async with connect(f"{served.url}/openhands/sockets/events/nothing", proxy=None) as socket:
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(socket.recv(), PATIENCE)
        assert socket.close_code == 4004


@pytest.mark.slow
async def test_the_system_prompt_is_told_with_the_first_words_and_never_again() -> None:
    async with listening() as listener:
        await listener.talk.say("a", run=True)
        heard = await listener.until(lambda heard: "MessageEvent" in heard)
        assert heard.index("SystemPromptEvent") == heard.index("MessageEvent") - 1
        await listener.talk.api.finish(await listener.talk.run())
        await listener.talk.say("b")
        heard = await listener.until(lambda heard: heard.count("MessageEvent") == 3)
        assert heard.count("SystemPromptEvent") == 1
    async with listening(_finish) as later:
        await later.talk.say("b")
        assert "SystemPromptEvent" not in await later.until(lambda heard: "MessageEvent" in heard)


def test_a_delta_is_framed_once_for_all_sockets_of_a_conversation() -> None:
    newer, older = (Writer(UUID(int=1), generation) for generation in (Generation.NEWER, Generation.OLDER))
    event = shared_delta(newer, _delta(1))
    assert shared_delta(Writer(UUID(int=1), Generation.NEWER), _delta(1)) is event
    assert shared_delta(newer, _delta(1)).frame is event.frame
    assert event["content"] == "so on"
    for other in (shared_delta(newer, _delta(2)), shared_delta(older, _delta(1))):
        assert other is not event


async def test_a_query_of_many_fields_brings_no_key() -> None:
    query = "&".join(["a=b"] * 100)
    async with serving(GUARDED, OPENHANDS) as served:
        async with connect(f"{served.url}/openhands/sockets/events/{uuid4()}?{query}", proxy=None) as socket:
            await socket.send("{}")
            await asyncio.wait_for(socket.wait_closed(), PATIENCE)
        assert socket.close_code == 4001


async def test_sockets_that_come_at_once_are_no_more_than_may_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    may_look = asyncio.Event()

    async def look(*about: Any) -> Any:
        await may_look.wait()
        return await load_snapshot(*about)

    monkeypatch.setattr(sockets, "load_snapshot", look)
    async with serving(Settings(redis_url="redis://fake/0", max_watchers=2), OPENHANDS) as served:
        url = f"{served.url}/openhands/sockets/events/{(await begin(served.api)).id}"
        async with AsyncExitStack() as stack:
            burst = [await stack.enter_async_context(connect(url, proxy=None)) for _ in range(3)]
            await asyncio.wait_for(burst[2].wait_closed(), PATIENCE)
            assert burst[2].close_code == 1013
            may_look.set()
            for socket in burst[:2]:
                assert "full_state" in str(await asyncio.wait_for(socket.recv(), PATIENCE))
            await aeventually(lambda: served.api.store.feeds.watching == 2)
        await aeventually(lambda: served.api.store.feeds.watching == 0)
