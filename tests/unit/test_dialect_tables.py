"""What is closed here is whole in every dialect: each member has a row, or it is said what holds without; and no row is
without a member."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pytest

from api.app.installed import dialects_of
from api.kit import run_changes as changes
from api.kit.dialects import ClosedTable
from api.kit.projections import ViewProjection
from api.kit.run_changes import Change
from api.kit.run_view import REDUCERS
from palaver.errors import FACTS, ErrorObject
from palaver.events import EventKind, PartOf, complete
from palaver.store.reading.events import StoredEvent
from tests.feature_cases import CARRIED_OUT
from tests.unit.chat_logs import RUN

DECLARED = [(dialect.name, name, table) for dialect in dialects_of(("*",)) for name, table in dialect.tables.items()]

K: Final = EventKind
SILENT: Final = {
    K.RUN_CREATED,
    K.RUN_PAUSING,
    K.MESSAGES_WITHDRAWN,
    K.BUDGET_WARNING,
    K.CONVERSATION_CONDENSED,
    K.REASONING_DROPPED,
    K.CONVERSATION_DELETED,
}
"""Kinds that change nothing of what the reducer of a run's events tells."""
ADVICE: Final = pytest.mark.parametrize(
    ("action", "advice"),
    [("retry", " Try again."), ("wait", " Try again later."), ("settings", ""), ("fix_input", ""), ("none", "")],
)
"""What people are told to do."""
ENDS: Final = pytest.mark.parametrize(
    ("stop", "sentence"), [("deadline", "There was no time left for this."), ("error", "Internal error.")]
)
"""How an end is told that brings no error."""


def written(kind: EventKind, **data: Any) -> StoredEvent:
    return StoredEvent(RUN, 1, datetime(2026, 1, 2, tzinfo=UTC), kind, orjson.dumps(complete(kind, data)))


def error(error_class: str, user_action: str) -> ErrorObject:
    fields = {"class": error_class, "code": "some_code", "user_action": user_action}
    own = {"message": "Ours. (HTTP 500)", "provider": {"name": "p", "model": "m", "message": "Words of the provider."}}
    rest = {"source": "model", "retryable": True, "recoverable": False, "step": "1", "attempt": 1}
    return {**fields, **own, **rest}  # type: ignore[typeddict-item]


def check_changes(dialect: type[ViewProjection[Any]], untold: set[type[Change]]) -> None:
    """Assert that a table over the changes of a run has a row for each but these."""
    assert {*changes.CHANGES} - dialect.rows.keys() == untold
    assert dialect.rows.keys() <= {*changes.CHANGES}


def sentence_of(error_class: str, advice: str) -> str:
    """What people are told of a failure of a class."""
    known: dict[str, str] = {each: f"{FACTS[each].sentence}{advice}" for each in FACTS}
    return known.get(error_class, "Internal error.")


@pytest.mark.parametrize("table", [each[2] for each in DECLARED], ids=[f"{each[0]} {each[1]}" for each in DECLARED])
def test_each_member_has_a_row_and_each_row_a_member(table: ClosedTable) -> None:
    # A dialect may have a row for what a feature had that was carried out.
    assert (table.amiss & {*map(str, table.members)} if CARRIED_OUT else table.amiss) == set()


def test_a_table_says_what_is_amiss() -> None:
    assert ClosedTable(("one", "two"), {"two": 2, "three": 3}).amiss == {"one", "three"}
    assert ClosedTable(("one",), {"one": 1, "two": 2, "three": 3}, optional=("two", "four")).amiss == {"three"}


def test_what_is_part_of_the_answer_has_a_row_in_the_reducer() -> None:
    assert {kind for kind in K if kind.part_of is PartOf.ANSWER} - REDUCERS.keys() == set()
    assert {*K} - REDUCERS.keys() == SILENT
