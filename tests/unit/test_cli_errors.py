"""What the commands say when it cannot be done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from features.stack.ports import free_port
from tests.command_line import RUN, CommandResult
from tests.scripted_api import RUN_ID, Reply, ScriptedAPI, problem


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        yield server


class TestErrors:
    @pytest.mark.parametrize(
        ("reply", "code", "sentence"),
        [
            (problem(404, "run_not_found", "It was never there."), 2, "It was never there. `palaver list` shows"),
            (problem(401, "unauthenticated", "Send a key."), 2, "Send a key. Give a key that may do this"),
            (problem(409, "run_ended", "It ended."), 2, "It ended (run_ended, request req_1)."),
            (problem(422, "validation_error", "Bad."), 2, "Bad (validation_error, request req_1)."),
            (problem(429, "quota", "Too much.", Retry_After="90"), 2, "Too much. Try again in 90 s."),
            (problem(501, "internal", "Broken."), 3, "Broken (HTTP 501, request req_1). Try again"),
            (Reply(200, b"<html>"), 3, "is the URL right? Name another with --url"),
        ],
    )
    def test_one_sentence_and_what_to_do(self, api: ScriptedAPI, reply: Reply, code: int, sentence: str) -> None:
        api.on("GET", RUN, reply)
        for options in ([], ["--json"]):
            said = CommandResult(api, "show", RUN_ID, *options)
            assert (said.code, said.out) == (code, "")
            assert said.err.startswith("palaver: ")
            assert said.err.count("\n") == 1
            assert sentence in said.err

    def test_nobody_there(self) -> None:
        said = CommandResult(f"http://127.0.0.1:{free_port()}", "queues", "--json")
        assert (said.code, said.out) == (3, "")
        assert "Start the API (palaver up), or name another with --url" in said.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["show"],
            ["list", "--status", "dead"],
            ["list", "--limit", "0"],
            ["run", "hi", "--tool", "calculator"],
            ["nonsense"],
        ],
    )
    def test_usage_is_exit_code_2(self, api: ScriptedAPI, arguments: list[str]) -> None:
        said = CommandResult(api, *arguments)
        assert (said.code, said.out) == (2, "")
        assert said.err
        assert not api.seen

    def test_a_url_that_is_none(self) -> None:
        said = CommandResult("localhost", "queues")
        assert said.code == 2
        assert "is no URL of an API" in said.err
