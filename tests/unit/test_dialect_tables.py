"""What is closed here is whole in every dialect: each member has a row, and no row is without a member."""

from __future__ import annotations

from typing import get_args

import pytest

from api.dialects import ClosedTable
from api.installed import dialects_of
from api.openhands.conversations import ConversationCounting
from api.openhands.tables import FOUND_BY, HTTP_STATUS, RUN_STATUSES, TABLES
from api.problems import CODES
from palaver.errors import ErrorClass
from palaver.vocabulary.lifecycle import RunStatus, StopReason

DECLARED = [(dialect.name, name, table) for dialect in dialects_of(("*",)) for name, table in dialect.tables.items()]


@pytest.mark.parametrize("table", [each[2] for each in DECLARED], ids=[f"{each[0]} {each[1]}" for each in DECLARED])
def test_each_member_has_a_row_and_each_row_a_member(table: ClosedTable) -> None:
    assert table.amiss == set()


def test_a_table_says_what_is_amiss() -> None:
    assert ClosedTable(("one", "two"), {"two": 2, "three": 3}).amiss == {"one", "three"}


def test_openhands_declares_those_for_errors_statuses_and_stops() -> None:
    members = {frozenset(table.members) for table in TABLES.values()}
    assert {frozenset(ErrorClass), frozenset(("idle", *RunStatus))} <= members
    # Of other stops its clients learn by an error, or that all is well.
    ends = {each for each in StopReason if each.status not in (RunStatus.INCOMPLETE, RunStatus.EXPIRED)}
    assert frozenset({*StopReason} - ends) in members
    assert {each.status for each in ends} == {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}


def test_what_openhands_finds_by_a_status_is_shown_with_it() -> None:
    shown = {(here, there) for here, there in RUN_STATUSES.items()}
    found = {(here, there) for there, those in FOUND_BY.items() for here in those}
    # A run that is stuck has failed, and is found by both.
    assert found - shown == {("failed", "stuck")}
    assert shown <= found


def test_openhands_searches_take_those_statuses() -> None:
    (known,) = [each for each in get_args(ConversationCounting.model_fields["status"].annotation) if get_args(each)]
    assert set(get_args(known)) == set(FOUND_BY)


def test_problems_that_have_another_status_there_are_ours() -> None:
    assert HTTP_STATUS.keys() <= CODES.keys()
