"""What the clients raise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.http.problems import CODES
from features.stack.ports import free_port
from palaver.client import (
    APIError,
    ClientError,
    Conflict,
    ConnectionFailed,
    NotFound,
    Palaver,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unprocessable,
    backoff,
)
from palaver.errors import PalaverError
from tests.both_clients import RUN, Call, async_client, both_clients
from tests.scripted_api import RUN_ID, Reply, ScriptedAPI, answer, problem, run_object


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        yield server


@async_client
class TestErrors:
    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, Unprocessable),
            (401, Unauthorized),
            (403, Unauthorized),
            (404, NotFound),
            (405, APIError),
            (409, Conflict),
            (410, Conflict),
            (422, Unprocessable),
            (501, Unavailable),
        ],
    )
    def test_each_status_has_its_type(self, api: ScriptedAPI, call: Call, status: int, kind: type[APIError]) -> None:
        faults = [{"pointer": "/agent/model", "code": "missing", "message": "is required"}]
        api.on("GET", RUN, problem(status, "some_code", "It cannot be.", faults))
        with pytest.raises(kind) as caught:
            call(api.url, "get", RUN_ID)
        error = caught.value
        assert type(error) is kind
        assert isinstance(error, PalaverError)
        assert (error.status, error.code, error.detail, error.request_id) == (
            status, "some_code", "It cannot be.", "req_1",
        )  # fmt: skip
        assert error.errors == tuple(faults)
        assert str(error) == "It cannot be. (/agent/model: is required)"
        assert len(api.seen) == 1

    @pytest.mark.parametrize(("status", "kind"), [(429, TooManyRequests), (503, Unavailable), (500, Unavailable)])
    def test_what_may_pass_is_tried_again_then_told(
        self, api: ScriptedAPI, call: Call, status: int, kind: type[APIError]
    ) -> None:
        api.on("GET", RUN, problem(status, "later", Retry_After="0"))
        with pytest.raises(kind) as caught:
            call(api.url, "get", RUN_ID)
        assert caught.value.retry_after == 0
        assert len(api.seen) == 4

    def test_a_long_retry_after_is_told_at_once(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", RUN, problem(429, "later", Retry_After="3600"))
        with pytest.raises(TooManyRequests) as caught:
            call(api.url, "get", RUN_ID)
        assert caught.value.retry_after == 3600
        assert len(api.seen) == 1

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(200, b"<html>hello</html>", {"Content-Type": "text/html"}),
            Reply(302, b"", {"Location": "https://elsewhere.example/login"}),
            Reply(200, b'{"id": 3}'),
            Reply(200, b"[" * 100_000),
        ],
        ids=["page", "redirect", "no run", "deep"],
    )
    def test_another_server_on_that_port(self, api: ScriptedAPI, call: Call, reply: Reply) -> None:
        api.on("GET", RUN, reply)
        with pytest.raises(APIError, match="is the URL right") as caught:
            call(api.url, "get", RUN_ID)
        assert caught.value.code == "unexpected_answer"


@async_client
@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_without_an_end_is_left(
    api: ScriptedAPI, call: Call, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.client.aio.transport.MAX_ANSWER", 1000)
    api.on("DELETE", RUN, Reply(status, pieces=(b"x" * 600,) * 3, hang=True))
    with pytest.raises(APIError, match="is the URL right") as caught:
        call(api.url, "delete", RUN_ID)
    assert (caught.value.status, caught.value.code) == (status, "unexpected_answer")


def test_a_silent_server_is_a_lost_answer(api: ScriptedAPI) -> None:
    api.on("POST", "/v1/conversations", Reply(hang=True))
    with Palaver(api.url, timeout=0.1) as client, pytest.raises(ConnectionFailed, match="in time"):
        client.create_conversation()


def test_room_is_not_waited_for_longer_than_the_timeout(api: ScriptedAPI) -> None:
    api.on("POST", "/v1/runs", problem(429, "too_many_runs", Retry_After="1"))
    waits: list[tuple[str, float]] = []

    def told(error: ClientError, seconds: float) -> None:
        waits.append((str(error), seconds))

    with Palaver(api.url, timeout=2.0, on_wait=told) as client, pytest.raises(TooManyRequests):
        client.submit("hi", model="fake/echo")
    assert 1 <= len(waits) == len(api.seen) - 1
    assert all(why and 1.0 <= seconds <= 1.1 for why, seconds in waits)


@both_clients
class TestBothClients:
    """What waits, and what fails, before there is an answer."""

    @pytest.mark.parametrize(("status", "code"), [(429, "too_many_runs"), (503, "store_nearly_full")])
    def test_room_for_a_run_is_waited_for(self, api: ScriptedAPI, call: Call, status: int, code: str) -> None:
        api.on("POST", "/v1/runs", *[problem(status, code, Retry_After="0")] * 6, answer(run_object(), 202))
        assert call(api.url, "submit", "hi", model="fake/echo").id == RUN_ID
        assert len({seen.headers["idempotency-key"] for seen in api.seen}) == 1

    def test_nobody_there(self, call: Call) -> None:
        url = f"http://127.0.0.1:{free_port()}"
        with pytest.raises(ConnectionFailed, match="no answer from") as caught:
            call(url, "queues")
        assert (caught.value.url, caught.value.perhaps_done) == (url, False)
        assert str(caught.value).endswith("Start the API (palaver up), or name another with PALAVER_URL or base_url.")


def test_a_refusal_for_want_of_room_has_begun_nothing() -> None:
    failures = {code: status for code, (status, _) in CODES.items() if status >= 500}
    assert {code for code, status in failures.items() if APIError(status, code, "").perhaps_done} == {
        "corrupt_record", "internal", "not_durable", "not_ready", "unavailable",
    }  # fmt: skip
    assert CODES.keys() >= backoff.NO_ROOM


@pytest.mark.parametrize(("failures", "longest"), [(1, 1), (2, 2), (3, 4), (4, 8), (10**6, 10**6)])
def test_a_pause_is_doubled_with_jitter_up_to_the_longest(failures: int, longest: int) -> None:
    longest_pause = min(backoff.FIRST_PAUSE * longest, backoff.LONGEST_PAUSE)
    assert longest_pause / 2 <= backoff.pause(failures) <= longest_pause
