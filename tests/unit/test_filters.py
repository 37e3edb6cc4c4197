"""What a filter of runs may say is the same wherever it is said."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest

from api.native.filters import Filters
from palaver.cli.bulk import FilterOptions
from palaver.filters import RunFilter, admits, statuses
from palaver.models import Run
from tests.scripted_api import CONVERSATION_ID, run_object

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def run() -> Run:
    changes = {"tags": ["blue"], "error": {"class": "timeout"}, "agent": {"model": "a/b", "name": "demo"}}
    return Run.model_validate_json(json.dumps(run_object("failed", **changes)))


def test_the_api_and_the_command_take_the_same_filters() -> None:
    names = set(RunFilter.__annotations__)
    assert set(Filters.model_fields) == names
    options = {field.name for field in fields(FilterOptions)}
    renamed = {"conversation": "conversation_id", "agent_name": "agent", "older_than": "created_before"}
    assert {renamed.get(name, name) for name in options} == names - {"created_after"}


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        (RunFilter(), RunFilter(status=[])),
        (RunFilter(status="queued,failed"), RunFilter(status="queued")),
        (RunFilter(status={"failed"}), RunFilter(status=("expired",))),
        (RunFilter(status=None, tag=None), RunFilter(tag="")),
        (RunFilter(tag="blue"), RunFilter(tag="red")),
        (RunFilter(conversation_id=CONVERSATION_ID), RunFilter(conversation_id="conv_x")),
        (RunFilter(agent="demo"), RunFilter(agent="other")),
        (RunFilter(error_class="timeout"), RunFilter(error_class="connection")),
        (RunFilter(created_after=CREATED - SECOND), RunFilter(created_after=CREATED)),
        (RunFilter(created_before=CREATED + SECOND), RunFilter(created_before=CREATED)),
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
