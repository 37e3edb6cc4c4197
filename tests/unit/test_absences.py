"""Masters that are away: who waits for them, and who asks."""

from __future__ import annotations

from palaver.store.redis.cluster.absences import RESTS, Absences

PATIENCE = 5.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_one_is_waited_for_together_and_then_asked_now_and_then() -> None:
    clock = Clock()
    absences = Absences(PATIENCE, clock)
    assert (absences.is_away("one"), absences.may_ask("one")) == (False, True)

    absences.note("one")
    assert absences.is_away("one")
    clock.now += PATIENCE / 2
    # Who comes later waits for the rest of the time.
    absences.note("one")
    assert absences.may_ask("one")
    assert not absences.is_lasting("one")
    clock.now += PATIENCE / 2
    assert absences.is_lasting("one")
    # The first who asks then does; nobody else for a while.
    assert [absences.may_ask("one") for _ in range(3)] == [True, False, False]
    clock.now += RESTS
    assert [absences.may_ask("one") for _ in range(3)] == [True, False, False]
    assert absences.may_ask("another")

    absences.forget("one")
    assert (absences.is_away("one"), absences.is_lasting("one"), absences.may_ask("one")) == (False, False, True)


def test_what_nobody_asked_for_long_is_not_known() -> None:
    clock = Clock()
    absences = Absences(PATIENCE, clock)
    absences.note("one")
    clock.now += 2 * PATIENCE
    assert not absences.is_away("one")
    absences.note("one")
    assert not absences.is_lasting("one")
