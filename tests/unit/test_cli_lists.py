"""Lists on a terminal of 80 columns: facts stay whole, and the text gives way."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from palaver.cli.conversations import show_list
from palaver.cli.tables import show_models, show_queues, show_runs
from palaver.cli.text import seconds
from palaver.schemas.conversation import Conversation
from palaver.schemas.listed_model import ListedModel
from palaver.schemas.models import Run
from tests.scripted_api import CONVERSATION_ID, RUN_ID, conversation_object, model_object, run_object

WIDTH = 80
LONG = "word " * 100


def on_a_terminal(show: Callable[[Console], None], width: int = WIDTH) -> list[str]:
    """The lines that are shown, of which none is longer than the terminal."""
    written = io.StringIO()
    show(Console(file=written, width=width, force_terminal=True, color_system=None, highlight=False, markup=False))
    lines = written.getvalue().splitlines()
    assert all(cell_len(line) <= width for line in lines), lines
    return lines


def in_a_pipe(show: Callable[[Console], None]) -> list[str]:
    """The lines that another program gets."""
    written = io.StringIO()
    show(Console(file=written, width=240, highlight=False, markup=False))
    return written.getvalue().splitlines()


def a_run(status: str = "completed", model: str = "fake/tool-20", **changes: Any) -> Run:
    """A run that was submitted three hours ago."""
    at = (datetime.now(UTC) - timedelta(hours=3, minutes=5)).isoformat()
    times = {"created_at": at, "deadline": at}
    agent = {"model": model, "tools": []}
    return Run.model_validate(
        run_object(status, agent=agent, model=model, times=times, output=LONG, input_preview="What is it?", **changes)
    )


@pytest.mark.parametrize("status", ["completed", "requires_action"])
@pytest.mark.parametrize("model", ["fake/tool-20", "openrouter/anthropic/claude-sonnet-4.5-20250929-thinking"])
def test_runs_are_shown_whole(status: str, model: str) -> None:
    lines = on_a_terminal(lambda to: show_runs(to, [a_run(status, model)] * 2))
    shown = " ".join(lines)
    for fact in (RUN_ID, status, model, "3 h ago"):
        assert shown.count(fact) == 2
    assert sum("What is it? · word word" in line for line in lines) == 2
    assert " ".join(" ".join(lines).split()).startswith("RUN STATUS MODEL")


def test_a_list_in_a_pipe_has_a_line_a_run_and_whole_times() -> None:
    header, line = in_a_pipe(lambda to: show_runs(to, [a_run()]))
    assert header.split() == ["RUN", "STATUS", "MODEL", "CREATED", "QUESTION", "WHAT"]
    assert line.split()[:3] == [RUN_ID, "completed", "fake/tool-20"]
    assert datetime.fromisoformat(" ".join(line.split()[3:5])).tzinfo is not None


def test_a_wide_terminal_needs_one_line_a_run() -> None:
    assert len(on_a_terminal(lambda to: show_runs(to, [a_run()] * 3), width=140)) == 4


def test_conversations_are_shown_whole() -> None:
    at = (datetime.now(UTC) - timedelta(minutes=12)).isoformat()
    found = Conversation.model_validate(
        conversation_object(status="requires_action", title="Invoices of March", tags=["x"], updated_at=at)
    )
    shown = " ".join(on_a_terminal(lambda to: show_list(to, [found])))
    for fact in (CONVERSATION_ID, "requires_action", "12 min ago", "Invoices of March · x"):
        assert fact in shown


def test_models_are_shown_whole() -> None:
    name = "openrouter/anthropic/claude-sonnet-4.5-20250929-thinking"
    shown = " ".join(on_a_terminal(lambda to: show_models(to, [ListedModel.model_validate(model_object(name))])))
    assert name in shown
    assert "yes" in shown


def test_queues_and_providers_are_shown_whole() -> None:
    names = ["openrouter-of-the-team", "anthropic"]
    until = (datetime.now(UTC) + timedelta(seconds=90)).isoformat()
    providers = [
        {
            "name": name, "cooling_until": until, "waiting": 12, "outages": [], "in_flight": 3, "max_in_flight": 1000,
            "requests_last_minute": 600, "requests_per_minute": 6000, "tokens_last_minute": 1_234_567,
            "tokens_per_minute": 12_345_678,
        }
        for name in names
    ]  # fmt: skip
    queues = [{"name": "model", "ready": 3, "oldest_ready_seconds": 125.0, "running": 50, "workers": [{}, {}]}]
    lines = on_a_terminal(lambda to: show_queues(to, {"queues": queues, "providers": providers}))
    shown = " ".join(" ".join(lines).split())
    for fact in (*names, "2m 05s", "12345678", "1234567", "6000"):
        assert fact in shown
    assert "…" not in shown


def test_a_column_that_is_empty_takes_no_room() -> None:
    state = {"name": "fake", "cooling_until": None, "waiting": 0, "in_flight": None}
    assert on_a_terminal(lambda to: show_queues(to, {"providers": [state]}))[0].split() == ["NAME", "WAITING"]


@pytest.mark.parametrize(
    ("duration", "shown"),
    [(0.2451, "0.245 s"), (12.0, "12 s"), (60, "1m 00s"), (125.4, "2m 05s"), (3599.9, "1h 00m"), (11400, "3h 10m"),
     (86399, "23h 59m"), (360_000, "4d 4h")],
)  # fmt: skip
def test_durations_are_for_people(duration: float, shown: str) -> None:
    assert seconds(duration) == shown
