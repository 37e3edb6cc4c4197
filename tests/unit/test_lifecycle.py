"""The lifecycle: one table, and each stop reason ends in one status."""

from __future__ import annotations

import pytest

from palaver.ids import is_id, new_id, shard_of
from palaver.lifecycle import TRANSITIONS, RunStatus, StopReason

TERMINAL = {
    RunStatus.COMPLETED,
    RunStatus.INCOMPLETE,
    RunStatus.FAILED,
    RunStatus.CANCELLED,
    RunStatus.EXPIRED,
}


def test_nothing_leaves_a_terminal_status() -> None:
    assert {status for status in RunStatus if status.terminal} == TERMINAL


def test_every_status_can_be_reached_and_can_end() -> None:
    reached, frontier = set(), {RunStatus.QUEUED}
    while frontier:
        reached |= frontier
        frontier = {target for status in frontier for target in TRANSITIONS[status]} - reached
    assert reached == set(RunStatus)
    for status in set(RunStatus) - TERMINAL:
        assert RunStatus.CANCELLED in TRANSITIONS[status]


@pytest.mark.parametrize("reason", StopReason)
def test_each_reason_ends_in_one_terminal_status(reason: StopReason) -> None:
    assert reason.status in TERMINAL


def test_only_a_cancel_ends_a_run_that_is_cancelling() -> None:
    assert TRANSITIONS[RunStatus.CANCELLING] == {RunStatus.CANCELLED}


def test_an_id_carries_its_shard_and_is_hard_to_guess() -> None:
    ids = {new_id("run", "0f") for _ in range(1000)}
    assert len(ids) == 1000
    assert {shard_of(each) for each in ids} == {"0f"}
    assert all(is_id("run", each) and not is_id("conv", each) for each in ids)
    for wrong in ("", "run_", "run_0g" + "0" * 26, "run_00" + "0" * 25, "conv_00" + "0" * 26 + "\n", "../etc"):
        assert not is_id("conv", wrong)
        with pytest.raises(ValueError, match="not an id"):
            shard_of(wrong)


def test_what_can_be_done_to_a_run_follows_from_its_status() -> None:
    ended = {"completed", "incomplete", "failed", "cancelled", "expired"}
    assert {status for status in RunStatus if status.allows("delete")} == ended
    assert {status for status in RunStatus if status.allows("cancel")} == set(RunStatus) - ended
    assert {status for status in RunStatus if status.allows("retry")} == {"incomplete", "failed", "expired"}
