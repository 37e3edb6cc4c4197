"""What the commands say, where they say it, and how they exit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.command_line import EVENTS, FINISHED, RESULT, RUN, RUNS, TURN, CommandResult
from tests.scripted_api import (
    COMPLETED,
    CONVERSATION_ID,
    FAILED,
    RUN_ID,
    ScriptedAPI,
    answer,
    error_object,
    frame,
    model_object,
    newer_frame,
    run_object,
    stream,
)


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", RUNS, answer(run_object("queued"), 202))
        server.on("GET", RUN, answer(COMPLETED))
        server.on("GET", EVENTS, stream(*TURN))
        yield server


class TestRun:
    def test_streams_what_happens_and_says_how_it_ended(self, api: ScriptedAPI) -> None:
        said = CommandResult(
            api, "run", "What is 2+2?", "--model", "fake/tool-20", "--tool", "calculator", "-i", "Be brief."
        )
        assert said.code == 0
        assert said.out.splitlines() == [
            f"run {RUN_ID} in conversation {CONVERSATION_ID}",
            "queued behind run run_00other, which the conversation is busy with",
            "step 1, attempt 1 failed, again in 1.5 s: rate_limited: Slow.",
            "I will ",
            "(step 1 broke off: the half-streamed text above is withdrawn)",
            "step 1 lost its worker; another one takes over",
            "Let me \\x1b[2Jsee.",
            '→ calculator {"expression": "2+2"}',
            "← calculator 4",
            "four",
            f"completed (end_turn) · 10 tokens in, 5 out, 1 model call, 0 tool calls · {RUN_ID} · {CONVERSATION_ID}",
        ]
        assert said.err == ""
        assert api.asked("POST", RUNS)[0].body == {
            "agent": {"model": "fake/tool-20", "instructions": "Be brief.", "tools": ["calculator"]},
            "input": "What is 2+2?",
        }

    def test_json_lines_are_the_events(self, api: ScriptedAPI) -> None:
        said = CommandResult(api, "run", "hi", "-m", "fake/echo", "--json")
        assert said.code == 0
        assert [event["seq"] for event in said.documents] == list(range(1, 18))
        assert said.documents[-1]["type"] == "run.finished"
        assert said.documents[-1].items() >= FINISHED.items()

    def test_without_streaming_only_the_answer_is_on_stdout(self, api: ScriptedAPI) -> None:
        said = CommandResult(api, "run", "hi", "-m", "fake/echo", "--no-stream")
        assert (said.code, said.out) == (0, "four\n")
        assert said.err.startswith("completed (end_turn)")
        [document] = CommandResult(api, "run", "hi", "-m", "fake/echo", "--no-stream", "--json").documents
        assert document["output"] == "four"

    def test_detached(self, api: ScriptedAPI) -> None:
        said = CommandResult(api, "run", "-", "--conversation", CONVERSATION_ID, "--detach", input="from a pipe")
        assert (said.code, said.out) == (0, f"{RUN_ID}\n")
        assert api.seen[0].body == {"input": "from a pipe", "conversation_id": CONVERSATION_ID}
        [document] = CommandResult(api, "run", "hi", "-m", "a/b", "--detach", "--json").documents
        assert document["status"] == "queued"

    @pytest.mark.parametrize("mode", [[], ["--json"], ["--no-stream"]])
    @pytest.mark.parametrize("status", ["failed", "incomplete", "expired", "cancelled"])
    def test_any_other_end_is_exit_code_1(self, api: ScriptedAPI, status: str, mode: list[str]) -> None:
        api.on("GET", RUN, answer(run_object(status)))
        api.on("GET", EVENTS, stream(frame(1, "run.finished", status=status)))
        assert CommandResult(api, "run", "hi", "-m", "fake/echo", *mode).code == 1

    def test_a_failure_says_what_to_do(self, api: ScriptedAPI) -> None:
        api.on("GET", RUN, answer(FAILED))
        api.on("GET", EVENTS, stream(frame(1, "run.finished", status="failed")))
        said = CommandResult(api, "run", "hi", "-m", "fake/echo")
        assert said.out.splitlines()[1:3] == [
            "authentication: The key is not accepted.",
            "what to do: check the key of provider fake, the variable that its api_key_env names (settings)",
        ]
        assert "failed (error)" in said.out

    def test_failed_tools_cut_answers_and_cancels_are_said(self, api: ScriptedAPI) -> None:
        api.on(
            "GET",
            EVENTS,
            stream(
                frame(1, "tool.finished", step="1/c", message={**RESULT, "content": "no\nsuch", "is_error": True}),
                frame(2, "run.cancelling", reason="enough"),
                frame(3, "message.created", message={"role": "assistant", "content": "hal", "partial": True}),
                newer_frame(4, "message.created", message="junk"),
                newer_frame(5, "message.delta", text=3),
                frame(6, "message.created", message={"role": "user", "content": "Try other ways."}, nudge=True),
                frame(7, "conversation.condensed", summary="so far", through=3),
                frame(8, "budget.warning", what="tokens", used=81, limit=100),
                frame(9, "budget.warning", what="cost_usd", used=None, limit=0.5),
                frame(10, "run.finished"),
            ),
        )
        said = CommandResult(api, "run", "hi", "-m", "fake/echo")
        assert "limit tokens: 81 of 100 used" in said.out
        assert "limit cost_usd: an unknown amount of 0.5 used" in said.out
        assert "(the model was told: Try other ways.)" in said.out
        assert "its older part is now a summary" in said.out
        assert "← calculator failed: no such" in said.out
        assert "cancelling (enough)" in said.out
        assert "hal\n(the answer was cut off here)" in said.out


class TestWatch:
    def test_shows_the_input_and_resumes_behind_after(self, api: ScriptedAPI) -> None:
        api.on("GET", EVENTS, stream(*TURN[2:]))
        said = CommandResult(api, "watch", RUN_ID, "--after", "2")
        assert said.code == 0
        assert said.out.startswith("> What is 2+2?\n")
        assert api.asked("GET", EVENTS)[0].headers["last-event-id"] == "2"
        assert [event["seq"] for event in CommandResult(api, "watch", RUN_ID, "--json").documents] == list(range(3, 18))

    def test_who_comes_in_the_middle_or_missed_a_part_is_told_the_whole(self, api: ScriptedAPI) -> None:
        whole = {"role": "assistant", "content": "one two three"}
        api.on(
            "GET",
            EVENTS,
            stream(
                frame(2, "message.delta", text="one "),
                frame(2, "stream.gap", first=3, last=7),
                frame(8, "message.delta", text="three"),
                frame(9, "message.created", message=whole),
                frame(10, "run.finished"),
            ),
        )
        lines = CommandResult(api, "watch", RUN_ID).out.splitlines()
        assert lines[:4] == ["one ", "(events 3 to 7 are no longer kept)", "three", "one two three"]

    def test_a_run_that_failed_is_exit_code_1(self, api: ScriptedAPI) -> None:
        api.on("GET", RUN, answer(FAILED))
        assert CommandResult(api, "watch", RUN_ID).code == 1


class TestOthers:
    def test_list(self, api: ScriptedAPI) -> None:
        waiting = run_object("queued", waiting={"reason": "conversation_busy", "run_id": "run_00other"})
        page = {"data": [COMPLETED, FAILED, waiting], "next_cursor": None, "has_more": False}
        api.on("GET", RUNS, answer(page))
        said = CommandResult(api, "list", "--status", "failed", "--status", "queued", "--limit", "3")
        assert said.code == 0
        assert said.out.count(RUN_ID) == 3
        assert "authentication: The key" in said.out
        assert "behind run_00other" in said.out
        assert api.seen[0].query == {"status": "failed,queued", "limit": "3"}
        [document] = CommandResult(api, "list", "--json").documents
        assert [run["status"] for run in document] == ["completed", "failed", "queued"]

    def test_an_empty_list(self, api: ScriptedAPI) -> None:
        api.on("GET", RUNS, answer({"data": [], "next_cursor": None}))
        said = CommandResult(api, "list")
        assert (said.code, said.out, said.err) == (0, "", "No runs.\n")
        assert CommandResult(api, "list", "--json").documents == [[]]

    def test_show(self, api: ScriptedAPI) -> None:
        said = CommandResult(api, "show", RUN_ID)
        assert said.code == 0
        assert re.search(r"^status +completed \(end_turn\)$", said.out, re.MULTILINE)
        assert said.out.endswith("\nfour\n")
        assert CommandResult(api, "show", RUN_ID, "--json").documents[0]["id"] == RUN_ID

    def test_show_says_what_no_worker_has(self, api: ScriptedAPI) -> None:
        waiting = {"reason": "no_worker", "code": "tool:look_up"}
        api.on("GET", RUN, answer(run_object("running", waiting=waiting)))
        assert re.search(r"^waiting +no worker has tool look_up$", CommandResult(api, "show", RUN_ID).out, re.MULTILINE)

    def test_show_says_what_had_left_redis(self, api: ScriptedAPI) -> None:
        assert "archived" not in CommandResult(api, "show", RUN_ID).out
        api.on("GET", RUN, answer(run_object("completed", archived=True)))
        assert re.search(r"^archived +it had left Redis$", CommandResult(api, "show", RUN_ID).out, re.MULTILINE)

    def test_show_of_a_run_that_was_retried_leads_on_to_the_newer_one(self, api: ScriptedAPI) -> None:
        error = error_object("timeout", user_action="retry")
        api.on("GET", RUN, answer(run_object("failed", stop_reason="error", error=error, retried_as="run_2")))
        out = CommandResult(api, "show", RUN_ID).out
        assert "what to do    it was retried: `palaver show run_2` says what came of it\n" in out
        assert "palaver retry" not in out

    def test_show_says_once_how_the_last_attempt_failed(self, api: ScriptedAPI) -> None:
        lost = {"error_class": "worker_lost", "code": "worker_lost", "message": "", "at": "2026-01-02T12:00:00Z"}
        step = {"step": "1", "kind": "model", "name": "fake/echo", "state": "ready", "attempt": 2, "last_failure": lost}
        api.on("GET", RUN, answer(run_object("running", current_steps=[step], current_step_count=1)))
        assert "(attempt 2, last: worker_lost)" in CommandResult(api, "show", RUN_ID).out

    def test_cancel(self, api: ScriptedAPI) -> None:
        api.on("POST", f"{RUN}/cancel", answer(run_object("cancelling"), 202))
        said = CommandResult(api, "cancel", RUN_ID, "--reason", "enough")
        assert (said.code, said.out) == (0, f"{RUN_ID} is cancelling\n")
        assert api.seen[0].body == {"mode": "now", "reason": "enough"}
        assert CommandResult(api, "cancel", RUN_ID, "--json").documents[0]["status"] == "cancelling"

    def test_models(self, api: ScriptedAPI) -> None:
        left_alone = {"callable": None, "cooling_until": "2026-01-01T00:00:00Z", "price": None}
        found = [model_object("a/x"), model_object("b/*", **left_alone), model_object("c/y", callable=False)]
        api.on("GET", "/v1/models", answer({"data": found, "next_cursor": None, "has_more": False}))
        said = CommandResult(api, "models")
        assert said.code == 0
        assert re.search(r"^a/x +yes +2 +8 *$", said.out, re.MULTILINE)
        assert re.search(r"^b/\* +\? +\d\d:\d\d:\d\d *$", said.out, re.MULTILINE)
        assert re.search(r"^c/y +NO", said.out, re.MULTILINE)
        assert [each["id"] for each in CommandResult(api, "models", "--json").documents[0]] == ["a/x", "b/*", "c/y"]

    def test_show_says_what_the_provider_said(self, api: ScriptedAPI) -> None:
        provider = {
            "name": "fake",
            "model": "m",
            "http_status": 400,
            "request_id": None,
            "message": "Pass it back\x1b[2J.",
        }
        failed = run_object("failed", stop_reason="error", error=error_object("invalid_request", provider=provider))
        api.on("GET", RUN, answer(failed))
        assert "provider said Pass it back\\x1b[2J.\n" in CommandResult(api, "show", RUN_ID).out
        api.on("GET", RUN, answer(FAILED))
        assert "provider said" not in CommandResult(api, "show", RUN_ID).out

    def test_queues(self, api: ScriptedAPI) -> None:
        processes = [{"id": f"tools@host~1/{pid}"} for pid in (17, 18, 19)] + [{"id": "tools@host~2/20"}]
        api.on("GET", "/v1/queues", answer({"data": [{"name": "tools", "ready": 3, "workers": processes}]}))
        assert CommandResult(api, "queues").out.splitlines()[1].split() == ["tools", "3", "2"]
        body: dict[str, Any] = {"data": [{"name": "model", "ready": 3, "workers": [{"id": "w1"}]}], "draining": False}
        body["no_worker"] = [{"code": "key:MINE_KEY", "steps": 3, "run_id": RUN_ID}]
        body["room"] = {"runs": 7, "max_runs": 10, "memory_bytes": 4096, "max_memory_bytes": None}
        api.on("GET", "/v1/queues", answer(body))
        said = CommandResult(api, "queues")
        assert said.code == 0
        assert re.search(r"NAME +READY +WORKERS", said.out)
        assert "draining: false" in said.out
        assert f"no worker has key MINE_KEY: 3 steps wait, one of {RUN_ID}\n" in said.out
        assert "room: 7 of 10 places for runs (a run at work takes two), 0.0 MiB of memory\n" in said.out
        assert CommandResult(api, "queues", "--json").documents == [body]
