"""Commands on many runs: which ones, whether that is meant, and what was done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.command_line import RUN, RUNS, CommandResult
from tests.scripted_api import CONVERSATION_ID, RUN_ID, Reply, ScriptedAPI, answer, run_object
from tests.terminal import Terminal

ACTIONS = "/v1/runs/actions"
CONVERSATION = f"/v1/conversations/{CONVERSATION_ID}"


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", ACTIONS, result("run_1", "run_2", skipped={"run_ended": 3}))
        yield server


def result(*run_ids: str, **changes: Any) -> Reply:
    """What the API says it did."""
    done, skipped = len(run_ids), sum(changes.get("skipped", {}).values())
    whole = {"matched": done + skipped, "done": done, "skipped": {}, "dry_run": False, "next_cursor": None}
    return answer({**whole, "run_ids": list(run_ids), "retried_as": {}, **changes})


def asked(api: ScriptedAPI) -> list[dict[str, Any]]:
    """The bodies that were sent."""
    return [seen.body for seen in api.asked("POST", ACTIONS)]


STATUSES = {
    "cancel": ["cancelling", "paused", "queued", "requires_action", "running"],
    "retry": ["expired", "failed", "incomplete"],
    "delete": ["cancelled", "completed", "expired", "failed", "incomplete"],
}


class TestWhich:
    @pytest.mark.parametrize("verb", STATUSES)
    def test_all_are_those_that_it_can_be_done_to(self, api: ScriptedAPI, verb: str) -> None:
        assert CommandResult(api, verb, "--all").code == 0
        [body] = asked(api)
        assert (body["action"], body["filter"]) == (verb, {"status": STATUSES[verb]})
        assert "all" not in body

    def test_a_filter(self, api: ScriptedAPI, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TZ", "UTC")
        CommandResult(
            api, "retry", "-s", "failed", "--tag", "a", "-c", CONVERSATION_ID, "--agent-name", "b",
            "--error-class", "rate_limited", "--older-than", "1.5h", "--metadata", "customer=42", "--metadata", "a=b=c",
            "--provider", "p", "--model", "p/m", "--tool", "t", "--stop-reason", "error", "--error-code", "http_500",
            "--not-retried", "--submitted-by", "ops",
            "--since", "2026-01-31T12:00:00Z", "--until", "2026-02-01T12:00:00Z",
            "--ended-since", "2026-01-31T13:00:00+01:00", "--ended-until", "2026-02-01T12:00:00Z",
        )  # fmt: skip
        assert asked(api)[0]["filter"] == {
            "status": ["failed"],
            "tag": "a",
            "submitted_by": "ops",
            "conversation_id": CONVERSATION_ID,
            "agent": "b",
            "error_class": "rate_limited",
            "older_than": 5400.0,
            "metadata": {"customer": "42", "a": "b=c"},
            "provider": "p",
            "model": "p/m",
            "tool": "t",
            "stop_reason": "error",
            "error_code": "http_500",
            "retried": False,
            "created_after": "2026-01-31T12:00:00+00:00",
            "created_before": "2026-02-01T12:00:00+00:00",
            "ended_after": "2026-01-31T12:00:00+00:00",
            "ended_before": "2026-02-01T12:00:00+00:00",
        }

    @pytest.mark.parametrize(
        ("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("15m", 900.0), ("12h", 43200.0), ("3d", 259200.0)]
    )
    def test_times(self, api: ScriptedAPI, text: str, seconds: float) -> None:
        CommandResult(api, "delete", "--older-than", text)
        assert asked(api)[0]["filter"]["older_than"] == seconds

    def test_how_to_cancel(self, api: ScriptedAPI) -> None:
        CommandResult(api, "cancel", "--tag", "a", "--mode", "graceful", "-r", "enough")
        assert (asked(api)[0]["mode"], asked(api)[0]["reason"]) == ("graceful", "enough")

    @pytest.mark.parametrize(
        "arguments",
        [
            ["cancel"],
            ["cancel", RUN_ID, "--all"],
            ["cancel", RUN_ID, "--tag", "a"],
            ["cancel", RUN_ID, "--dry-run"],
            ["cancel", "--all", "--tag", "a"],
            ["cancel", "--older-than", "soon"],
            ["cancel", "--error-class", "bad_luck"],
            ["cancel", "--stop-reason", "boredom"],
            ["cancel", "--metadata", "customer"],
            ["cancel", "--since", "once"],
            ["cancel", "--since", "999999d"],
            ["cancel", "--until", "9999-12-31T23:59:59-01:00"],
            ["cancel", "--older-than", "9" * 400],
            ["delete", RUN_ID, "-s", "failed"],
            ["retry", "--all", "--from-step", "2"],
            ["retry", "--tag", "a", "--budget", "tokens=3"],
        ],
    )
    def test_what_is_not_clear_is_not_done(self, api: ScriptedAPI, arguments: list[str]) -> None:
        said = CommandResult(api, *arguments)
        assert (said.code, said.out) == (2, "")
        assert not api.seen


class TestTold:
    @pytest.mark.parametrize(("verb", "done"), [("cancel", "cancelled"), ("retry", "retried"), ("delete", "deleted")])
    def test_how_many(self, api: ScriptedAPI, verb: str, done: str) -> None:
        assert CommandResult(api, verb, "--tag", "a").out.splitlines()[0] == f"{done} 2 runs; not: 3 run_ended"
        api.on("POST", ACTIONS, result("run_1"))
        assert CommandResult(api, verb, "--tag", "a").out.splitlines()[0] == f"{done} 1 run"

    def test_a_dry_run_says_which(self, api: ScriptedAPI) -> None:
        api.on("POST", ACTIONS, result("run_1", "run_2", done=0, dry_run=True))
        assert CommandResult(api, "cancel", "--all", "--dry-run").out == "2 runs would be cancelled\nrun_1\nrun_2\n"
        assert [body["dry_run"] for body in asked(api)] == [True]

    def test_json(self, api: ScriptedAPI) -> None:
        assert CommandResult(api, "cancel", "--all", "--json").documents == [
            {
                "matched": 5,
                "done": 2,
                "skipped": {"run_ended": 3},
                "dry_run": False,
                "run_ids": ["run_1", "run_2"],
                "retried_as": {},
            }
        ]

    def test_a_retry_says_which_runs_go_on_with_them(self, api: ScriptedAPI) -> None:
        api.on("POST", ACTIONS, result("run_1", retried_as={"run_1": "run_9"}, matched=201, done=201))
        said = CommandResult(api, "retry", "-s", "failed")
        assert said.out == "retried 201 runs\nrun_9 goes on with run_1\nand 200 more\n"

    def test_a_hundred_are_named(self, api: ScriptedAPI) -> None:
        ids = [f"run_{i}" for i in range(80)]
        more = result(*ids, done=0, dry_run=True, next_cursor="c"), result(*ids, done=0, dry_run=True)
        api.on("POST", ACTIONS, *more)
        said = CommandResult(api, "cancel", "--all", "--dry-run")
        assert said.out.splitlines() == ["160 runs would be cancelled", *ids, *ids[:20], "and 60 more"]


@pytest.mark.process
class TestOnATerminal:
    def test_more_than_one_are_asked_about(self, api: ScriptedAPI) -> None:
        with Terminal(api, "cancel", "--all") as terminal:
            terminal.wait_for("Cancel 2 runs? [y/N]: ")
            terminal.type("y\n")
            terminal.wait_for("cancelled 2 runs")
            assert terminal.end() == 0
        assert [body["dry_run"] for body in asked(api)] == [True, False]

    @pytest.mark.parametrize("typed", ["n\n", "\n", "\x04", "\x03"], ids=["no", "enter", "ctrl-d", "ctrl-c"])
    def test_and_left_alone_unless_it_is_meant(self, api: ScriptedAPI, typed: str) -> None:
        with Terminal(api, "delete", "--all") as terminal:
            terminal.wait_for("Delete 2 runs?")
            terminal.type(typed)
            assert terminal.end() in (1, 130)
        assert [body["dry_run"] for body in asked(api)] == [True]

    @pytest.mark.parametrize(
        ("arguments", "found"), [(["--yes"], 2), ([], 1)], ids=["it was said before", "one needs no question"]
    )
    def test_when_nobody_is_asked(self, api: ScriptedAPI, arguments: list[str], found: int) -> None:
        api.on("POST", ACTIONS, result(*("run_1", "run_2")[:found]))
        with Terminal(api, "delete", "--tag", "a", *arguments) as terminal:
            assert terminal.end() == 0
        assert asked(api)[-1]["dry_run"] is False

    @pytest.mark.parametrize(("runs", "question"), [(1, False), (2, True)])
    def test_a_conversation_with_several_runs(self, api: ScriptedAPI, runs: int, question: bool) -> None:
        api.on("GET", RUNS, answer({"data": [run_object("completed")] * runs, "next_cursor": None}))
        api.on("DELETE", CONVERSATION, Reply(204))
        with Terminal(api, "delete", CONVERSATION_ID) as terminal:
            if question:
                terminal.wait_for("with all its runs?")
                terminal.type("n\n")
            assert terminal.end() == int(question)
        assert len(api.asked("DELETE", CONVERSATION)) == int(not question)
        assert api.asked("GET", RUNS)[0].query["conversation_id"] == CONVERSATION_ID
        assert not api.asked("DELETE", RUN)
