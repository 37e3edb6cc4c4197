"""Checkers of the invariants I1 … I14: each looks at the evidence of a test and raises AssertionError.

====  ==============================================================================================================
I1    nothing lost            I2    nothing doubled            I3    tool effects at most once, told truthfully
I4    whole turns             I5    statuses move forward      I6    terminal is final
I7    every run ends          I8    the error is the right one I9    events without gaps, text that adds up
I10   one executor commits    I11   a cancel holds             I12   nothing leaks
I13   nothing is mixed up     I14   what it costs is bounded
====  ==============================================================================================================

Evidence is the store's final state and the ledgers that others wrote: the model server, the tools, watchers and the
client that submitted. There are no webhooks yet, so no ledger of their receiver, and no tenants: what I6 and I13 say of
them has no checker. Each checker is shown to fail by a mutant of the product: tests/chaos/mutants.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.checkers import events, inputs, leftovers, lifecycle, log, model_calls, tools
from tests.checkers.evidence import Evidence

Checker = Callable[[Evidence], None]

CHECKERS: Final[Mapping[str, tuple[Checker, ...]]] = {
    "I1": (log.positions_have_no_gap, log.accepted_input_is_there, log.every_step_has_its_message),
    "I2": (log.messages_once, log.one_run_for_a_key),
    "I3": (tools.no_tool_twice, tools.results_are_true, tools.starts_have_calls),
    "I4": (
        log.calls_have_one_result,
        log.sealed_in_call_order,
        log.withdrawn_as_a_whole,
        model_calls.nothing_refused,
    ),
    "I5": (lifecycle.statuses_follow_the_table,),
    "I6": (lifecycle.one_end, lifecycle.nothing_after_the_end),
    "I7": (lifecycle.all_end, lifecycle.in_time),
    "I8": (lifecycle.ends_truthfully, lifecycle.error_names_the_fault),
    "I9": (
        events.events_are_declared,
        events.numbers_have_no_gap,
        events.log_and_feed_agree,
        events.text_adds_up,
        events.watchers_saw_everything,
    ),
    "I10": (model_calls.newest_try_commits, model_calls.overlaps_follow_losses),
    "I11": (
        lifecycle.cancel_wins,
        lifecycle.nothing_starts_after_a_cancel,
        lifecycle.calls_stop_with_the_run,
        inputs.inputs_hold,
    ),
    "I12": (leftovers.nothing_left, leftovers.keys_expire),
    "I13": (model_calls.asked_from_own_log, model_calls.nonces_stay),
    "I14": (
        model_calls.calls_within_tries,
        model_calls.calls_within_need,
        model_calls.losses_follow_deaths,
        model_calls.retries_wait,
        model_calls.backlog_not_multiplied,
    ),
}


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold, and the checker that says so."""

    invariant: str
    checker: str
    says: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.checker}: {self.says[:3000]}"


def violations(evidence: Evidence, invariants: Iterable[str] = CHECKERS) -> list[Violation]:
    """What the checkers of these invariants find, of each one the first thing.

    Some hold only as long as the store forgets nothing: a power cut with ``appendfsync everysec`` makes the ledgers
    know more than the store does.
    """
    found = []
    for invariant in invariants:
        for checker in CHECKERS[invariant]:
            try:
                checker(evidence)
            except AssertionError as error:
                found.append(Violation(invariant, checker.__name__, str(error)))
    return found
