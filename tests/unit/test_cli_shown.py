"""No character of what a model, a tool or a user wrote steers the terminal that shows it, or hides what it says."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import pytest

from palaver.cli.text import one_line, plain, visible
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


@pytest.mark.parametrize("char", CONTROLS + BIDI + OTHERS, ids=lambda char: f"U+{ord(char):04X}")
def test_each_is_shown_as_an_escape(char: str) -> None:
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
