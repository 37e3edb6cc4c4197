"""What a filter of runs may say is the same wherever it is said."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest

from api.native.filters import Filters
from palaver.cli.bulk import FilterOptions
from palaver.errors import ErrorClass
from palaver.schemas.filters import RunFilter, admits, possible_statuses, statuses
from palaver.schemas.models import Run
from palaver.vocabulary.lifecycle import RunStatus
from tests.scripted_api import CONVERSATION_ID, run_object

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
ENDED = CREATED + timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def run() -> Run:
    changes = {
        "tags": ["blue"],
        "submitted_by": "ops",
        "metadata": {"customer": "42", "plan": "pro"},
        "stop_reason": "error",
        "error": {"class": "timeout", "code": "read_timeout"},
        "agent": {
            "model": "a/b",
            "fallbacks": ["c/d"],
            "name": "demo",
            "tools": ["t"],
            "client_tools": [{"name": "u"}],
        },
        "model": "c/d",
        "times": {**run_object()["times"], "ended_at": "2026-01-01T01:00:00Z"},
    }
    return Run.model_validate_json(json.dumps(run_object("failed", **changes)))


def test_the_api_and_the_command_take_the_same_filters() -> None:
    names = set(RunFilter.__annotations__)
    assert set(Filters.model_fields) == names
    options = {field.name for field in fields(FilterOptions)}
    renamed = {
        "conversation": "conversation_id", "agent_name": "agent", "older_than": "created_before",
        "since": "created_after", "until": "created_before", "ended_since": "ended_after",
        "ended_until": "ended_before",
    }  # fmt: skip
    assert {renamed.get(name, name) for name in options} == names


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        (RunFilter(), RunFilter(status=[])),
        (RunFilter(status="queued,failed"), RunFilter(status="queued")),
        (RunFilter(status={"failed"}), RunFilter(status=("expired",))),
        (RunFilter(status=None, tag=None), RunFilter(tag="")),
        (RunFilter(tag="blue"), RunFilter(tag="red")),
        (RunFilter(conversation_id=CONVERSATION_ID), RunFilter(conversation_id="conv_x")),
        (RunFilter(submitted_by="ops"), RunFilter(submitted_by="op")),
        (RunFilter(agent="demo"), RunFilter(agent="other")),
        (RunFilter(error_class="timeout"), RunFilter(error_class="connection")),
        (RunFilter(created_after=CREATED - SECOND), RunFilter(created_after=CREATED)),
        (RunFilter(created_before=CREATED + SECOND), RunFilter(created_before=CREATED)),
        (RunFilter(ended_after=ENDED - SECOND), RunFilter(ended_after=ENDED)),
        (RunFilter(ended_before=ENDED + SECOND), RunFilter(ended_before=ENDED)),
        (RunFilter(stop_reason="error"), RunFilter(stop_reason="stuck")),
        (RunFilter(error_code="read_timeout"), RunFilter(error_code="timeout")),
        (RunFilter(metadata={"plan": "pro", "customer": "42"}), RunFilter(metadata={"plan": "pro", "customer": "4"})),
        (RunFilter(metadata={}), RunFilter(metadata={"42": "customer"})),
        (RunFilter(model="c/d"), RunFilter(model="a/b")),
        (RunFilter(provider="c"), RunFilter(provider="a")),
        (RunFilter(tool="t"), RunFilter(tool="v")),
        (RunFilter(tool="u"), RunFilter(tool="demo")),
        (RunFilter(retried=False), RunFilter(retried=True)),
        (RunFilter(tag="blue", agent="demo"), RunFilter(tag="blue", agent="other")),
    ],
)
def test_a_run_must_fit_all_that_is_given(run: Run, fits: RunFilter, does_not: RunFilter) -> None:
    assert admits(fits, run)
    assert not admits(does_not, run)


def test_statuses_are_a_list_or_a_text() -> None:
    assert (
        statuses({"status": "failed,expired"}) == statuses({"status": ["failed", "expired"]}) == ("failed", "expired")
    )
    assert statuses({}) is None


@pytest.mark.parametrize(
    ("wanted", "possible"),
    [
        ({}, None),
        ({"status": [*RunStatus]}, None),
        ({"status": "failed,queued"}, {"failed", "queued"}),
        ({"status": []}, set()),
        ({"stop_reason": "stuck"}, {"failed"}),
        ({"stop_reason": "stuck", "status": "completed"}, set()),
        ({"error_code": "http_500"}, {"failed"}),
        ({"error_class": "timeout", "status": "failed,expired"}, {"failed"}),
        ({"retried": False}, None),
        ({"retried": True, "status": "queued,expired"}, {"expired"}),
        ({"ended_after": CREATED}, {status for status in RunStatus if status.terminal}),
    ],
)
def test_the_statuses_that_a_run_can_have_that_fits(wanted: RunFilter, possible: set[str] | None) -> None:
    found = possible_statuses(wanted)
    assert (None if found is None else set(found)) == possible


@pytest.mark.parametrize("error_class", ErrorClass)
def test_a_class_that_no_run_fails_with_is_refused(error_class: ErrorClass) -> None:
    never = {"content_filter", "invalid_tool_call", "tool_error", "tool_timeout", "tool_interrupted", "tool_denied"}
    if error_class in never:
        with pytest.raises(ValueError, match=f"no run fails with {error_class}.*stop_reason"):
            Filters(error_class=error_class)
    else:
        assert Filters(error_class=error_class).as_filter() == {"error_class": error_class}
