"""Waiting for a run, and run() as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from features.stack.ports import free_port
from palaver.client import APIError, Conflict, NotFound, RunFailed, Unauthorized, Unprocessable, WaitTimeout
from tests.both_clients import RUN, RUNS, Call, async_client, both_clients
from tests.scripted_api import COMPLETED, FAILED, RUN_ID, Reply, ScriptedAPI, answer, problem, run_object


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        yield server


@async_client
class TestWait:
    @pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled", "expired"])
    def test_every_end_returns_at_once(self, api: ScriptedAPI, call: Call, status: str) -> None:
        api.on("GET", RUN, answer(run_object(status)))
        assert call(api.url, "wait", RUN_ID).status == status
        [seen] = api.seen
        assert seen.query == {"wait": "30", "until": "terminal"}

    def test_it_goes_on_over_everything_that_may_pass(self, api: ScriptedAPI, call: Call) -> None:
        api.on(
            "GET", RUN, problem(503, "unavailable", Retry_After="0"), Reply(cut=True),
            answer(run_object("queued")), problem(429, "later", Retry_After="0"), Reply(502, b"<html>"),
            answer(run_object()), answer(COMPLETED),
        )  # fmt: skip
        assert call(api.url, "wait", RUN_ID, timeout=20).output == "four"
        assert len(api.seen) == 7

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, Unprocessable), (401, Unauthorized), (403, Unauthorized), (404, NotFound), (405, APIError),
            (409, Conflict), (410, Conflict), (422, Unprocessable),
        ],
    )  # fmt: skip
    def test_4xx_is_final(self, api: ScriptedAPI, call: Call, status: int, kind: type[APIError]) -> None:
        api.on("GET", RUN, answer(run_object()), problem(status, "no", "Not this one."))
        with pytest.raises(kind) as caught:
            call(api.url, "wait", RUN_ID, timeout=20)
        assert len(api.seen) == 2
        assert (caught.value.run_id, caught.value.code, caught.value.detail) == (RUN_ID, "no", "Not this one.")

    @pytest.mark.parametrize(
        "reply",
        [
            problem(429, "later", Retry_After="3600"), problem(500, "internal"), problem(503, "unavailable"),
            Reply(504, b"<html>"), Reply(cut=True),
        ],
        ids=["429", "500", "503", "a proxy", "cut"],
    )  # fmt: skip
    def test_what_may_pass_is_borne_until_the_timeout(self, api: ScriptedAPI, call: Call, reply: Reply) -> None:
        api.on("GET", RUN, answer(run_object("running")), reply)
        begun = time.monotonic()
        with pytest.raises(WaitTimeout, match="its status is running") as caught:
            call(api.url, "wait", RUN_ID, timeout=0.7)
        assert time.monotonic() - begun >= 0.7
        assert caught.value.run_id == RUN_ID
        assert len(api.seen) > 1

    def test_timeout_says_the_last_status(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", RUN, answer(run_object("requires_action")))
        begun = time.monotonic()
        with pytest.raises(WaitTimeout, match="requires_action") as caught:
            call(api.url, "wait", RUN_ID, timeout=0.4)
        assert time.monotonic() - begun >= 0.4
        assert (caught.value.run_id, caught.value.timeout) == (RUN_ID, 0.4)
        assert len(api.seen) < 10

    def test_timeout_zero_looks_once(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", RUN, answer(run_object()))
        with pytest.raises(WaitTimeout):
            call(api.url, "wait", RUN_ID, timeout=0)
        assert len(api.seen) == 1

    def test_timeout_holds_when_the_server_is_silent_or_gone(self, api: ScriptedAPI, call: Call) -> None:
        api.on("GET", RUN, Reply(hang=True))
        for url in (api.url, f"http://127.0.0.1:{free_port()}"):
            with pytest.raises(WaitTimeout, match="no answer"):
                call(url, "wait", RUN_ID, timeout=0.3)


@both_clients
class TestRun:
    def test_returns_what_the_submission_waited_for(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, answer(COMPLETED))
        assert call(api.url, "run", "2+2?", model="fake/echo", timeout=9.5).output == "four"
        assert [seen.headers["prefer"] for seen in api.seen] == ["wait=9"]

    def test_timeout_is_said_as_it_was_given(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, answer(run_object("queued"), 202))
        api.on("GET", RUN, answer(run_object()))
        begun = time.monotonic()
        with pytest.raises(WaitTimeout, match=r"did not end within 0\.6 s; its status is running") as caught:
            call(api.url, "run", "2+2?", model="fake/echo", timeout=0.6)
        assert caught.value.timeout == 0.6
        assert time.monotonic() - begun >= 0.6

    def test_waits_for_the_rest_and_raises_the_failure(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, answer(run_object("queued"), 202))
        api.on("GET", RUN, answer(run_object()), answer(FAILED))
        with pytest.raises(RunFailed, match="The key is not accepted") as caught:
            call(api.url, "run", "hello", model="fake/echo")
        assert str(caught.value) == f"run {RUN_ID} failed: authentication: The key is not accepted."
        assert caught.value.run_id == RUN_ID
        assert caught.value.error == FAILED["error"]
        assert call(api.url, "run", "hello", model="fake/echo", raise_on_failure=False).status == "failed"

    def test_other_ends_are_returned(self, api: ScriptedAPI, call: Call) -> None:
        api.on("POST", RUNS, answer(run_object("expired", stop_reason="deadline")))
        assert call(api.url, "run", "hello", model="fake/echo").status == "expired"
