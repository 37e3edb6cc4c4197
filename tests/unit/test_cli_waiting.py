"""Commands that stay with a run: what they bear, what ends them, and what they then say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from features.stack.ports import free_port
from tests.command_line import EVENTS, RUN, RUNS, TURN, CommandResult
from tests.scripted_api import COMPLETED, RUN_ID, Reply, ScriptedAPI, answer, frame, problem, run_object, stream

MODES = pytest.mark.parametrize("mode", [[], ["--json"], ["--no-stream"]], ids=["stream", "json", "no stream"])
LATER = problem(503, "unavailable", Retry_After="0")
MANY = 4
"""More failures in a row than one call of the SDK bears."""


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", RUNS, answer(run_object("queued"), 202))
        server.on("GET", RUN, answer(COMPLETED))
        server.on("GET", EVENTS, stream(*TURN))
        yield server


def run(api: ScriptedAPI, mode: list[str]) -> CommandResult:
    return CommandResult(api, "run", "hi", "-m", "fake/echo", *mode)


def test_what_a_submit_waits_for_is_said(api: ScriptedAPI) -> None:
    full = problem(429, "too_many_runs", "Nothing was taken on.", Retry_After="1")
    api.on("POST", RUNS, full, answer(run_object("queued"), 202))
    said = run(api, ["--detach"])
    assert (said.code, said.out) == (0, f"{RUN_ID}\n")
    assert said.err == "palaver: Nothing was taken on. Trying again in 1 s.\n"


@MODES
class TestRun:
    def test_an_api_that_is_away_for_long_is_waited_for(self, api: ScriptedAPI, mode: list[str]) -> None:
        later = [LATER, problem(429, "later", Retry_After="0"), Reply(502, b"<html>", {"Retry-After": "0"}), LATER]
        api.on("GET", EVENTS, *later, stream(b"retry: 1\n\n", *TURN[:5], cut=True), *later, stream(*TURN[5:]))
        api.on("GET", RUN, *later, answer(COMPLETED))
        said = run(api, mode)
        assert said.code == 0
        if not mode:
            assert said.out.count("queued behind run") == said.out.count("four\n") == 1
        if mode == ["--json"]:
            assert [event["seq"] for event in said.documents] == list(range(1, len(TURN) + 1))

    def test_so_is_one_that_drops_every_connection(self, api: ScriptedAPI, mode: list[str]) -> None:
        api.on("GET", EVENTS, *[Reply(cut=True)] * MANY, stream(*TURN))
        api.on("GET", RUN, *[Reply(cut=True)] * MANY, answer(COMPLETED))
        assert run(api, mode).code == 0

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 410])
    def test_a_refusal_is_final(self, api: ScriptedAPI, mode: list[str], status: int) -> None:
        refused = problem(status, "no", "Not this one.")
        api.on("GET", EVENTS, refused)
        api.on("GET", RUN, refused)
        said = run(api, mode)
        assert said.code == 2
        assert "Not this one" in said.err
        assert len(api.seen) == 2


class TestWatch:
    @pytest.mark.parametrize("mode", [[], ["--json"]])
    def test_a_run_that_is_not_there(self, api: ScriptedAPI, mode: list[str]) -> None:
        api.on("GET", RUN, problem(404, "run_not_found", "It was never there."))
        said = CommandResult(api, "watch", RUN_ID, *mode)
        assert (said.code, said.out) == (2, "")
        assert "run not found: It was never there." in said.err
        assert len(api.seen) == 1

    def test_nobody_there(self) -> None:
        said = CommandResult(f"http://127.0.0.1:{free_port()}", "watch", RUN_ID)
        assert (said.code, said.out) == (3, "")
        assert "Start the API" in said.err

    @pytest.mark.parametrize("mode", [[], ["--json"]])
    def test_an_api_that_goes_away_is_waited_for(self, api: ScriptedAPI, mode: list[str]) -> None:
        api.on("GET", EVENTS, *[LATER] * MANY, stream(frame(1, "run.finished")))
        assert CommandResult(api, "watch", RUN_ID, *mode).code == 0
