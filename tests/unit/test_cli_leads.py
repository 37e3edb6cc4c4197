"""What the command offers to those who do not know it yet: a whole help, completion, and names that lead on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from palaver.cli.app import app
from tests.command_line import EVENTS, RUN, RUNS, TURN, CommandResult
from tests.scripted_api import (
    COMPLETED,
    CONVERSATION_ID,
    RUN_ID,
    ScriptedAPI,
    answer,
    conversation_object,
    frame,
    run_object,
    stream,
)
from tests.waiting import PATIENCE

PAGE = {"data": [run_object("completed", input_preview="What is it?")], "next_cursor": None}


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("GET", RUNS, answer(PAGE))
        server.on("GET", RUN, answer(COMPLETED))
        yield server


def test_the_help_has_whole_sentences_at_80_columns() -> None:
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    commands = said.partition("Commands:")[2].partition("On a server")[0]
    assert "…" not in commands
    assert "..." not in commands
    assert max(map(len, commands.splitlines())) <= 80
    assert "Show one run: what it is doing, why it waits" in " ".join(commands.split())


@pytest.mark.process
def test_there_is_completion() -> None:
    asked = {"_PALAVER_COMPLETE": "complete_bash", "COMP_WORDS": "palaver conv", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['palaver']; from palaver.cli import main; main()"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "conversations" in done.stdout.split(), done.stderr
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout


def test_runs_leads_to_the_list(api: ScriptedAPI) -> None:
    assert CommandResult(api, "runs").out == CommandResult(api, "list").out != ""


def test_a_conversation_is_shown_with_its_runs(api: ScriptedAPI) -> None:
    api.on("GET", f"/v1/conversations/{CONVERSATION_ID}", answer(conversation_object(title="Invoices", archived=True)))
    said = CommandResult(api, "show", CONVERSATION_ID)
    assert said.code == 0
    for fact in ("Invoices", RUN_ID, "What is it?", "it had left Redis"):
        assert fact in said.out
    assert api.asked("GET", RUNS)[0].query["conversation_id"] == CONVERSATION_ID
    assert CommandResult(api, "show", CONVERSATION_ID, "--json").documents[0]["id"] == CONVERSATION_ID


def test_what_a_model_thinks_is_shown_to_who_asks(api: ScriptedAPI) -> None:
    thought = frame(5, "reasoning.delta", step="1", attempt=1, text="Two and two…")
    answered = frame(6, "message.created", message={"role": "assistant", "content": "four"})
    api.on("GET", EVENTS, stream(thought, answered, frame(7, "run.finished")))
    said = CommandResult(api, "watch", RUN_ID, "--reasoning")
    assert said.out.splitlines()[:2] == ["Two and two…", "four"]
    assert api.asked("GET", EVENTS)[0].query["include"] == "reasoning"
    api.on("GET", EVENTS, stream(*TURN))
    CommandResult(api, "watch", RUN_ID)
    assert "include" not in api.asked("GET", EVENTS)[1].query
