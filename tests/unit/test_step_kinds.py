"""Every kind of step has a row for its workers, and a queue of its own."""

from __future__ import annotations

from palaver.vocabulary.step_kinds import KINDS, QUEUES
from workers.steps.step_handlers import STEP_HANDLERS


def test_every_kind_has_a_row_and_a_queue_of_its_own() -> None:
    assert [row.kind for row in STEP_HANDLERS] == list(KINDS)
    assert len({kind.name for kind in KINDS}) == len(QUEUES) == len(KINDS)
