"""A stream of events over connections that break."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from features.stack.ports import free_port
from palaver.client import APIError, ConnectionFailed
from palaver.events import UnknownEvent
from tests.both_clients import EVENTS, RUN, Call, async_client, both_clients
from tests.scripted_api import COMPLETED, RUN_ID, Reply, ScriptedAPI, answer, frame, newer_frame, problem, stream


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        yield server


def deltas(*seqs: int) -> bytes:
    """Events of a text that streams."""
    return b"".join(frame(seq, "message.delta", text=str(seq)) for seq in seqs)


@async_client
class TestEvents:
    def test_after_begins_there(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", EVENTS, stream(deltas(5), frame(6, "run.finished")))
        assert [event.seq for event in call(api.url, "events", RUN_ID, after=4)] == [5, 6]
        sent = api.seen[0].headers
        assert (sent["last-event-id"], sent["accept"], sent["cache-control"]) == ("4", "text/event-stream", "no-store")

    def test_obeys_the_servers_retry(self, api: ScriptedAPI, call: Call) -> None:
        moments: list[float] = []
        ended = Reply(
            headers={"Content-Type": "text/event-stream"},
            pieces=(frame(2, "run.finished"),),
            before=lambda: moments.append(time.monotonic()),
        )
        api.on("GET", EVENTS, stream(b"retry: 400\n\n", deltas(1)), ended)
        begun = time.monotonic()
        call(api.url, "events", RUN_ID)
        assert moments[0] - begun >= 0.4

    @pytest.mark.parametrize("status", [400, 401, 404])
    def test_gives_up_on_4xx(self, api: ScriptedAPI, call: Call, status: int) -> None:
        api.on("GET", EVENTS, stream(b"retry: 1\n\n", deltas(1), cut=True), problem(status, "no"))
        with pytest.raises(APIError) as caught:
            call(api.url, "events", RUN_ID)
        assert (caught.value.status, caught.value.run_id) == (status, RUN_ID)

    def test_unknown_types_and_gaps_come_through(self, api: ScriptedAPI, call: Call) -> None:
        gap = frame(1, "stream.gap", first=2, last=4)
        api.on("GET", EVENTS, stream(newer_frame(1, "brand.new", x=1), gap, frame(5, "run.finished")))
        events = call(api.url, "events", RUN_ID)
        assert [(event.type, event.seq) for event in events] == [
            ("brand.new", 1), ("stream.gap", 1), ("run.finished", 5),
        ]  # fmt: skip
        assert (type(events[0]), events[0].model_extra) == (UnknownEvent, {"x": 1})
        assert (events[1].first, events[1].last) == (2, 4)

    def test_what_a_newer_server_says_more_is_left_out(self, api: ScriptedAPI, call: Call) -> None:
        said = {"role": "user", "content": "hi", "mood": "good"}
        newer = newer_frame(1, "message.created", message=said, colour="red")
        in_another_form = newer_frame(2, "run.finished", status="dissolved")
        api.on("GET", EVENTS, stream(newer, in_another_form))
        first, last = call(api.url, "events", RUN_ID)
        assert (first.message.content, first.model_extra) == ("hi", None)
        assert (type(last), last.type, last.model_extra) == (UnknownEvent, "run.finished", {"status": "dissolved"})

    def test_a_place_that_the_server_lost_is_left(self, api: ScriptedAPI, call: Call) -> None:
        api.on(
            "GET", EVENTS, stream(b"retry: 10\n\n", deltas(6, 7), cut=True), problem(400, "invalid_cursor"),
            stream(deltas(1), frame(2, "run.finished")),
        )  # fmt: skip
        events = call(api.url, "events", RUN_ID, after=5)
        assert [(event.type, event.seq) for event in events[2:]] == [
            ("stream.rewound", 0), ("message.delta", 1), ("run.finished", 2),
        ]  # fmt: skip
        assert (events[2].first, events[2].last) == (1, 7)
        assert [seen.headers.get("last-event-id") for seen in api.seen] == ["5", "7", None]

    def test_nothing_behind_the_end(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", EVENTS, stream(b": keep-alive\n\n"))
        api.on("GET", RUN, problem(503, "unavailable"), answer({**COMPLETED, "last_event_id": 9}))
        assert call(api.url, "events", RUN_ID, after=9) == []
        api.on("GET", EVENTS, Reply(204))
        assert call(api.url, "events", RUN_ID, after=9) == []

    def test_an_event_without_an_end(self, api: ScriptedAPI, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("palaver.client.resuming.MAX_ANSWER", 1000)
        many = [frame(seq, "message.delta", text="x" * 500) for seq in range(1, 9)]
        for endless in (b"data: " + b"x" * 600, b"data: x\n" * 80):
            api.on("GET", EVENTS, stream(*many, endless, endless, endless, hang=True))
            with pytest.raises(APIError, match="is the URL right"):
                call(api.url, "events", RUN_ID)
        assert len(api.seen) == 2

    def test_a_page_in_place_of_events(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", EVENTS, Reply(200, b"<html>", {"Content-Type": "text/html"}))
        with pytest.raises(APIError, match="is the URL right"):
            call(api.url, "events", RUN_ID)
        api.on("GET", EVENTS, stream(b"id: 1\nevent: x\ndata: no json\n\n"))
        with pytest.raises(APIError, match="is the URL right"):
            call(api.url, "events", RUN_ID)


@both_clients
class TestBothClients:
    """Streams that break, end early, or never begin."""

    def test_reconnects_and_resumes_exactly(self, api: ScriptedAPI, call: Call) -> None:
        broken = frame(4, "message.delta", text="4")
        api.on(
            "GET", EVENTS, stream(b"retry: 10\n\n", deltas(1, 2), cut=True),
            stream(deltas(3), broken[: len(broken) // 2]), problem(503, "unavailable", Retry_After="0"),
            Reply(cut=True), stream(deltas(3, 4), frame(5, "run.finished", status="completed")),
        )  # fmt: skip
        events = call(api.url, "events", RUN_ID)
        assert [event.seq for event in events] == [1, 2, 3, 4, 5]
        assert [event.text for event in events[:2]] == ["1", "2"]
        assert [seen.headers.get("last-event-id") for seen in api.seen] == [None, "2", "3", "3", "3"]

    def test_gives_up_when_it_was_never_there(self, call: Call) -> None:
        with pytest.raises(ConnectionFailed) as caught:
            call(f"http://127.0.0.1:{free_port()}", "events", RUN_ID)
        assert caught.value.run_id == RUN_ID

    def test_what_the_server_lost_is_told_again(self, api: ScriptedAPI, call: Call) -> None:
        rewound = frame(1, "stream.rewound", first=2, last=3)
        api.on("GET", EVENTS, stream(deltas(1, 2, 3), rewound, deltas(2), frame(3, "run.finished")))
        events = call(api.url, "events", RUN_ID)
        assert [event.seq for event in events if event.type != "stream.rewound"] == [1, 2, 3, 2, 3]
        assert (events[3].first, events[3].last) == (2, 3)

    def test_an_iterator_left_early_lets_the_connection_go(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", EVENTS, stream(deltas(1, 2, 3), hang=True))
        assert [event.seq for event in call(api.url, "events", RUN_ID, take=2)] == [1, 2]
