"""No character of what a model, a tool or a user wrote steers the terminal that shows it, or hides what it says."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from palaver.cli.running import RunFollower
from palaver.cli.text import one_line, plain, visible
from palaver.client import Palaver
from tests.command_line import EVENTS, RUN, RUNS, CommandResult
from tests.scripted_api import (
    RUN_ID,
    ScriptedAPI,
    action_object,
    answer,
    error_object,
    frame,
    problem,
    run_object,
    stream,
)

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
BIDI = [chr(code) for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
OTHERS = list("\u2028\u2029\u200b\u2060\ufeff\ufff9\U000e0041\ud800")
EVIL = "".join(CONTROLS + BIDI + OTHERS[:-1])
"""A lone surrogate is no JSON."""


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("POST", RUNS, answer(run_object("queued"), 202))
        yield server


def harmless(text: str) -> bool:
    """Whether each character is shown, where it stands."""
    return all(char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in text)


def test_each_is_shown_as_an_escape() -> None:
    for char in CONTROLS + BIDI + OTHERS:
        assert char not in plain(f"a{char}b")
        assert plain(f"a{char}b").startswith("a\\")
        assert plain(f"a{char}b").isprintable()
        assert char not in one_line(f"a{char}b")
        assert char not in visible(f"a{char}b")


@pytest.mark.parametrize("text", ["a\tb\nc", "naïve", "שלום", "नमस्ते", "👩‍👩‍👧", "می‌خواهم", "0 < 1", "C:\\dir"])
def test_what_people_write_is_shown_as_it_is(text: str) -> None:
    assert plain(text) == text


def test_lines_may_end_as_on_windows() -> None:
    assert plain("a\r\nb") == "a\nb"


def test_no_command_shows_one(api: ScriptedAPI) -> None:
    """In every text of a run that somebody else has written."""
    run = run_object(
        "requires_action",
        output=EVIL,
        tags=[EVIL],
        metadata={EVIL: EVIL},
        agent={"model": "fake/\u202eolleh", "tools": []},
        pending_actions=[action_object(tool=EVIL, arguments=EVIL)],
        error={"class": "tool_error", "code": EVIL, "message": EVIL, "retryable": False},
    )
    message = {"role": "assistant", "content": EVIL, "tool_calls": [{"id": "1", "name": EVIL, "arguments": EVIL}]}
    events = (
        frame(1, "message.delta", text=EVIL),
        frame(2, "message.created", message=message),
        frame(
            3,
            "tool.finished",
            message={"role": "tool", "call_id": EVIL, "name": EVIL, "content": EVIL, "is_error": True},
        ),
        frame(4, "run.retrying", step=EVIL, error=error_object(EVIL, message=EVIL)),
        frame(5, "run.waiting", step=EVIL, code=EVIL),
        frame(6, "action.resolved", by=EVIL, reason=EVIL),
        frame(7, "run.finished"),
    )
    api.on("GET", RUNS, answer({"data": [run], "next_cursor": None}))
    api.on("GET", EVENTS, stream(*events))
    ended = run | {"status": "failed", "stop_reason": "error", "pending_actions": []}
    for status, command in ((run, ["show", RUN_ID]), (run, ["list"]), (ended, ["watch", RUN_ID])):
        api.on("GET", RUN, answer(status))
        said = CommandResult(api, *command)
        assert len(said.out) > 100, said.err
        assert harmless(said.out + said.err), command
    api.on("GET", RUN, problem(404, "run_not_found", EVIL))
    said = CommandResult(api, "show", RUN_ID)
    assert said.err
    assert harmless(said.err)


def _doing(*steps: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    return {**run_object("running"), "current_steps": steps, "current_step_count": count or len(steps)}


def _hanging(**more: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "step": "1", "kind": "model", "name": "fake/hang", "state": "leased", "attempt": 3, "max_attempts": 5,
        "since": (now - timedelta(seconds=12)).isoformat(), "worker": "w1/1",
        "progress": {"bytes": 0, "characters": 0, "at": (now - timedelta(seconds=12)).isoformat()},
        "last_failure": {
            "error_class": "timeout", "code": "first_token_timeout", "message": "…", "at": now.isoformat(),
        },
        "gives_up_at": (now + timedelta(seconds=3600)).isoformat(), "again_at": None, **more,
    }  # fmt: skip


def test_a_hanging_call_is_shown_by_name(api: ScriptedAPI) -> None:
    api.on("GET", RUN, answer(_doing(_hanging())))
    (line,) = [each for each in CommandResult(api, "show", RUN_ID).out.splitlines() if each.startswith("now")]
    words = r"now +calling fake/hang for \d+ s \(attempt 3 of 5, last: timeout first_token_timeout\); "
    assert re.fullmatch(words + r"nothing has come yet; this attempt ends in (1h 00m|59m 5\ds) at the latest", line)


def test_what_has_come_of_an_answer_is_shown_and_that_no_more_comes(api: ScriptedAPI) -> None:
    at = (datetime.now(UTC) - timedelta(seconds=40)).isoformat()
    progress = {"bytes": 20_480, "characters": 1_500, "at": at}
    api.on("GET", RUN, answer(_doing(_hanging(attempt=1, last_failure=None, progress=progress))))
    out = CommandResult(api, "show", RUN_ID).out
    assert "20,480 bytes and 1,500 characters of text have come, the last 4" in out
    assert "(attempt" not in out.partition("calling")[2]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("ready", "fake/hang waits for a worker for 1"),
        ("later", "fake/hang waits until "),
        ("awaiting", "fake/hang waits for an answer for 1"),
        ("parked", "fake/hang is paused for 1"),
    ],
)
def test_a_step_that_nobody_has_says_what_it_waits_for(api: ScriptedAPI, state: str, said: str) -> None:
    more = {"worker": None, "progress": None, "gives_up_at": None, "again_at": datetime.now(UTC).isoformat()}
    api.on("GET", RUN, answer(_doing(_hanging(state=state, **more))))
    assert said in CommandResult(api, "show", RUN_ID).out


def test_a_worker_that_is_refused_is_named_where_a_step_waits_for_one(api: ScriptedAPI) -> None:
    waits = _hanging(state="ready", worker=None, progress=None, gives_up_at=None, last_failure=None, attempt=1)
    queue = {"name": "model", "ready": 1, "workers": [], "refused": [{"id": "w1/1", "refused": ["blmpop"]}]}
    tools = {"name": "tools", "workers": [], "refused": [{"id": "w2/1", "refused": ["login"]}]}
    api.on("GET", RUN, answer(_doing(waits)))
    # Who cannot see the queues sees the run.
    api.on("GET", "/v1/queues", problem(403, "forbidden"))
    assert "fake/hang waits for a worker" in CommandResult(api, "show", RUN_ID).out
    api.on("GET", "/v1/queues", answer({"data": [queue, tools]}))
    out = CommandResult(api, "show", RUN_ID).out
    assert "model: the worker w1/1 does nothing: its Redis refuses it blmpop: load the users.acl of its version" in out
    assert "w2/1" not in out
    shown = CommandResult(api, "queues").out
    assert "w1/1 does nothing: its Redis refuses it blmpop" in shown
    assert "tools: the worker w2/1 does nothing: its login at Redis is refused" in shown


def test_a_list_shows_the_first_step_and_counts_the_others(api: ScriptedAPI) -> None:
    api.on("GET", RUNS, answer({"data": [_doing(_hanging(), count=128)], "next_cursor": None, "has_more": False}))
    assert "(and 127 more)" in CommandResult(api, "list").out


def test_steps_that_are_left_out_are_counted(api: ScriptedAPI) -> None:
    api.on("GET", RUN, answer(_doing(_hanging(), _hanging(), count=20)))
    assert "… and 18 more" in CommandResult(api, "show", RUN_ID).out


def test_who_watches_is_told_what_hangs(api: ScriptedAPI, capsys: pytest.CaptureFixture[str]) -> None:
    api.on("GET", RUN, answer(_doing(_hanging())))
    with Palaver(api.url) as client:
        follower = RunFollower(client, RUN_ID, Console(), after=0, show_input=False, ask=False)
        follower.say_still(12.0)
    said = capsys.readouterr().err
    assert said.startswith("… calling fake/hang for 1")
    assert said.endswith(" at the latest\n")


def test_who_watches_is_told_what_the_events_said_where_the_api_says_no_more(
    api: ScriptedAPI, capsys: pytest.CaptureFixture[str]
) -> None:
    api.on("GET", RUN, problem(404, "run_not_found", "gone"))
    with Palaver(api.url) as client:
        RunFollower(client, RUN_ID, Console(), after=0, show_input=False, ask=False).say_still(12.0)
    assert capsys.readouterr().err == "… waiting for a worker, 12 s so far\n"
