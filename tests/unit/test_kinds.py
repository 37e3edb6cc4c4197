"""Every kind of step has a row for its workers, and a queue of its own."""

from __future__ import annotations

from palaver.kinds import KINDS, QUEUES
from workers.kinds import STEP_KINDS


def test_every_kind_has_a_row_and_a_queue_of_its_own() -> None:
    assert [row.kind for row in STEP_KINDS] == list(KINDS)
    assert len({kind.name for kind in KINDS}) == len(QUEUES) == len(KINDS)
