"""The search for a linear order: each planted fault is found, and no history is refused that may be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.histories import linearizability
from tests.histories.linearizability import NEVER, UNDECIDED, Operation, violations

KEY, RUN, OTHER = "key-1", "run_1", "run_2"
CREATED, STARTED = (1, "run.created"), (2, "run.started")
BORN = (CREATED, STARTED)
ASKED, YES, NO = (
    (3, "action.required", "act_1", "call_1"),
    (4, "action.resolved", "act_1", "approve"),
    ("act_1", "deny"),
)
SAID = (3, "said", "faster")

History = Sequence[Operation]
Stories = Mapping[str, Sequence[Operation | History]]


def submit(run: str | None = RUN) -> Operation:
    return Operation("submit", 0, answer=run)


def read(status: str, last: int, *pending: str, run: str = RUN) -> Operation:
    return Operation("read", 0, run=run, answer=(status, last, frozenset(pending)))


def events(*shown: tuple[object, ...], last: int | None = None) -> Operation:
    number = shown[-1][0] if shown else 0
    return Operation("events", 0, run=RUN, answer=(number if last is None else last, shown))


def finished(number: int, status: str = "completed") -> tuple[object, ...]:
    return number, "run.finished", status


def cancel() -> Operation:
    return Operation("cancel", 0, run=RUN)


def decide(decision: str = "approve", key: str = "k1", *, action: str = "act_1", taken: bool = False) -> Operation:
    return Operation("decide", 0, run=RUN, asked=(action, decision, key), answer=taken or None)


def say(words: str = "faster") -> Operation:
    return Operation("say", 0, run=RUN, asked=words)


def refused(op: Operation) -> Operation:
    return Operation("refused", 0, run=RUN, asked=(op.what, op.asked))


def gone(run: str = RUN) -> Operation:
    return Operation("gone", 0, run=run)


def found(*runs: str) -> Operation:
    return Operation("found", 0, answer=runs)


def synced() -> Operation:
    return Operation("synced", 0)


def rewound(*, keeps: bool = False) -> Operation:
    return Operation("rewound", 0, asked=keeps)


def lost(op: Operation) -> Operation:
    """The answer was lost."""
    return op._replace(ended=-NEVER)


def during(op: Operation, *others: Operation) -> History:
    """Begun before the others, and answered after them."""
    return [op._replace(begun=-1), *others]


def judged(history: Sequence[Operation | History]) -> list[str]:
    """What the search finds in operations of which each begins when the one before it was answered; those in a list
    are under way at the same time."""
    timed: list[Operation] = []
    now = 0.0
    for step in history:
        together = [step] if isinstance(step, Operation) else list(step)
        until = now + len(together) + 1
        for number, op in enumerate(together):
            begun, ended = (now, until) if op.begun < 0 else (now + number + 0.2, now + number + 0.8)
            timed.append(op._replace(begun=begun, ended=NEVER if op.ended < 0 else ended))
        now = until
    store = [op for op in timed if op.what in ("synced", "rewound")]
    return violations([(KEY, op) for op in timed if op not in store], store)


BEGUN: Final = (submit(), read("running", 2))
WAITS: Final = (*BEGUN, read("requires_action", 3, "act_1"))
ENDED: Final = (*BEGUN, read("completed", 5))

FAULTS: Stories = {
    "a status goes back": (*BEGUN, read("queued", 2)),
    "a run that has ended goes on": (*ENDED, read("running", 6)),
    "a run ends twice": (*ENDED, read("failed", 6)),
    "a stale read": (*BEGUN, read("running", 9), read("running", 8)),
    "a stale read after the end": (*ENDED, read("running", 2)),
    "a run that is there and then not": (*BEGUN, gone()),
    "a submit that was acknowledged and lost": (submit(), gone()),
    "two runs of one key": (submit(), submit(OTHER)),
    "two runs of one key, one of which was never told": (lost(submit(None)), submit(), found(RUN, OTHER)),
    "a run that was never submitted": (found(RUN),),
    "a cancel that was acknowledged, and the run completes": (*BEGUN, cancel(), read("completed", 5)),
    "a cancel that was acknowledged, and the run goes on": (*BEGUN, cancel(), read("running", 5)),
    "a cancel that was acknowledged, and the events have none": (*BEGUN, cancel(), events(*BORN)),
    "a cancel that was acknowledged, and then refused": (*BEGUN, cancel(), refused(cancel())),
    "a cancel of what had ended otherwise": (*ENDED, cancel()),
    "a cancel that is refused, and the run goes on": (*BEGUN, refused(cancel()), read("running", 5)),
    "a run is cancelled, and no client asked for that": (*BEGUN, read("cancelled", 5)),
    "two decisions on one action": (*WAITS, decide("approve"), decide("deny", "k2")),
    "a decision, and the other one takes effect": (*WAITS, decide("deny"), events(*BORN, ASKED, YES)),
    "a decision takes effect twice": (*WAITS, decide(), events(*BORN, ASKED, YES, (5, *YES[1:]))),
    "a decision that no client made": (*WAITS, events(*BORN, ASKED, YES)),
    "a decision that was acknowledged and lost": (*WAITS, decide(), read("requires_action", 3, "act_1")),
    "a decision that was acknowledged, and the events have none": (*WAITS, decide(), events(*BORN, ASKED)),
    "a decision whose repetition is refused": (*WAITS, decide(), decide(taken=True)),
    "a decision is refused as made, and none was made": (*WAITS, decide(taken=True)),
    "a call is done before the decision": (*WAITS, events(*BORN, ASKED, (4, "tool.finished", "call_1"))),
    "a call is done twice": (
        *WAITS,
        decide(),
        events(*BORN, ASKED, YES, (5, "tool.finished", "call_1"), (6, "tool.finished", "call_1")),
    ),
    "a run completes while a call waits": (*WAITS, read("completed", 5)),
    "a run goes on without the decision": (*WAITS, read("running", 4, "act_1")),
    "a decision on a run that has ended": (*WAITS, cancel(), read("cancelled", 7), decide()),
    "words that were acknowledged and lost": (*BEGUN, say(), events(*BORN, finished(5))),
    "words that the model is told twice": (*BEGUN, say(), events(*BORN, SAID, (4, *SAID[1:]))),
    "words that no client said": (*BEGUN, events(*BORN, SAID)),
    "words into a run that has ended": (*ENDED, say()),
    "words are refused, and the run goes on": (*BEGUN, refused(say()), read("running", 5)),
    "words whose repetition is refused": (*BEGUN, say(), read("completed", 5), refused(say())),
    "a number is given to two events": (*BEGUN, events(*BORN, (2, "step.lost"))),
    "an event changes": (*BEGUN, events(*BORN, (3, "step.lost")), events(*BORN, (3, "run.retrying"))),
    "an event vanishes": (*BEGUN, events(*BORN), events(CREATED, last=3)),
    "events that are stale": (*BEGUN, read("running", 9), events(*BORN)),
    "an event behind the last one": (*BEGUN, events(*BORN, finished(5), (6, "step.lost"))),
    "a number behind the last event": (*BEGUN, events(*BORN, finished(5)), read("completed", 6)),
    "two last events": (*BEGUN, events(*BORN, finished(5), finished(6))),
    "a run has ended, and its events have not": (*ENDED, events(*BORN, last=5)),
    "a last event, and the run goes on": (*BEGUN, events(*BORN, finished(5)), read("running", 5)),
    "another end than the status says": (*ENDED, events(*BORN, finished(5, "failed"))),
    "a run is running, and its events have no start": (*BEGUN, events(CREATED, last=3)),
    "a cancel whose answer was lost, and effect comes and goes": (
        *BEGUN, lost(cancel()), read("cancelling", 3), read("running", 4),
    ),
    "a lost answer takes effect twice": (
        *WAITS, lost(decide("deny")), decide("approve", "k2"), decide("deny", taken=True,
    ),
                                         events(*BORN, ASKED, (4, "action.resolved", *NO))),
    "a failover loses what was acknowledged": (submit(), synced(), cancel(), rewound(keeps=True), read("running", 2)),
    "a failover loses what was acknowledged before it": (
        submit(), synced(), during(read("running", 2), cancel(), rewound(keeps=True)), read("running", 2),
    ),
    "a store goes back further than it may": (*BEGUN, read("running", 9), synced(), rewound(), read("queued", 1)),
    "a store that lost a submit answers with the lost run": (
        synced(), submit(), rewound(), submit(OTHER), read("queued", 1),
    ),
}  # fmt: skip

LEGAL: Stories = {
    "nothing was ever asked": (),
    "a run from its submit to its end": (*ENDED, events(*BORN, finished(5)), read("completed", 5), found(RUN)),
    "a key used again": (submit(), *ENDED, submit(), found(RUN)),
    "a submit whose answer was lost and which came to nothing": (lost(submit(None)), gone(), found()),
    "a submit whose answer was lost, and its run": (lost(submit(None)), submit(), found(RUN)),
    "a submit whose answer was lost takes effect late": (lost(submit(None)), found(), found(RUN)),
    "two submits at the same time": (during(submit(), submit(), read("running", 2)), found(RUN)),
    "two reads at the same time": (*BEGUN, during(read("running", 2), read("completed", 5))),
    "a read that began before the end": (*BEGUN, during(read("running", 3), cancel(), read("cancelled", 5))),
    "a cancel at the moment of the end, too early": (*BEGUN, during(cancel(), read("cancelled", 5))),
    "a cancel at the moment of the end, too late": (
        *BEGUN, during(refused(cancel()), read("running", 3)), read("completed", 5),
    ),
    "a cancel whose answer was lost and which came to nothing": (*BEGUN, lost(cancel()), read("completed", 5)),
    "a cancel whose answer was lost takes effect late": (
        *BEGUN, lost(cancel()), read("running", 4), read("cancelled", 6),
    ),
    "a cancel before the start": (submit(), cancel(), events(CREATED, (2, "run.cancelling"), finished(3, "cancelled"))),
    "a cancel twice": (*BEGUN, cancel(), cancel(), read("cancelling", 3), read("cancelled", 4), cancel()),
    "a cancel ends the wait for a decision": (
        *WAITS, cancel(), refused(decide()),
        events(*BORN, ASKED, (4, "run.cancelling"), (5, "action.resolved", "act_1", "cancelled"),
               finished(6, "cancelled")),
    ),
    "a decision, and the call": (
        *WAITS, decide(), read("running", 4), read("completed", 7),
        events(*BORN, ASKED, YES, (5, "tool.finished", "call_1"), finished(7)),
    ),
    "of two decisions at the same time the second one holds": (
        *WAITS, during(decide(taken=True), decide("deny", "k2")),
        events(*BORN, ASKED, (4, "action.resolved", *NO)),
    ),
    "a decision whose answer was lost, asked again": (*WAITS, lost(decide()), decide(), read("running", 4)),
    "a decision whose answer was lost, and another": (
        *WAITS, lost(decide("deny")), decide("approve", "k2"), read("running", 4),
    ),
    "a decision asked again after the end": (*WAITS, decide(), read("completed", 6), decide()),
    "one decision of two": (
        *BEGUN, read("requires_action", 4, "act_1", "act_2"), decide(), read("running", 5, "act_2"),
        read("requires_action", 6, "act_2"), decide(action="act_2", key="k2"), read("completed", 9),
    ),
    "words into a run": (*BEGUN, say(), events(*BORN), events(*BORN, SAID), read("completed", 5)),
    "words whose answer was lost": (*BEGUN, lost(say()), events(*BORN, SAID, finished(5))),
    "words whose answer was lost and which came to nothing": (*BEGUN, lost(say()), events(*BORN, finished(5))),
    "words at the moment of the end": (*BEGUN, during(refused(say()), read("completed", 5))),
    "words asked again after the end": (*BEGUN, say(), read("completed", 5), say()),
    "events that have no deltas": (*BEGUN, events(*BORN, last=7), read("running", 8)),
    "events before the start": (submit(), events(CREATED), read("running", 2)),
    "a store goes back before a submit": (
        synced(), submit(), rewound(), gone(), submit(OTHER), read("queued", 1, run=OTHER),
    ),
    "a store goes back before a cancel": (
        *BEGUN, synced(), cancel(), rewound(), read("running", 2), read("completed", 5),
    ),
    "a store goes back before an end": (*BEGUN, synced(), read("completed", 5), rewound(), read("running", 3)),
    "a store goes back to between two": (*BEGUN, synced(), say(), cancel(), rewound(), events(*BORN, SAID)),
    "a failover forgets an end, and nothing that was promised": (
        *BEGUN, synced(), say(), read("completed", 6), rewound(keeps=True), read("running", 3),
        events(*BORN, SAID, finished(7)),
    ),
    "a failover forgets a cancel, which was seen before it was acknowledged and is done again": (
        *BEGUN, synced(), during(cancel(), read("cancelling", 3), rewound(keeps=True), read("running", 2)),
        read("cancelled", 4),
    ),
    "a failover forgets a decision, which was seen, and another one holds": (
        *WAITS, synced(),
        during(decide(taken=True), read("running", 4), rewound(keeps=True), decide("deny", "k2")),
        events(*BORN, ASKED, (4, "action.resolved", *NO)),
    ),
    "a failover forgets a cancel whose answer was lost": (
        *BEGUN, synced(), lost(cancel()), read("cancelling", 3), rewound(keeps=True), read("running", 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    """It is in the last operation: without that, all is well."""
    assert judged(FAULTS[name])
    assert not judged(FAULTS[name][:-1])


@pytest.mark.parametrize("name", LEGAL)
def test_what_may_be_is_not_refused(name: str) -> None:
    assert not judged(LEGAL[name])


def test_a_run_of_two_keys_is_found() -> None:
    submits = [Operation("submit", 0, 1, answer=RUN), Operation("submit", 2, 3, answer=RUN)]
    assert violations(zip(("a", "b"), submits, strict=True))
    assert not violations([("a", submits[0]), ("b", submits[1]._replace(answer=OTHER))])


def test_many_lost_answers_are_searched_in_time() -> None:
    """Each may have taken effect at any later moment, or never: of eight there are more orders than can be tried."""
    words = [f"word {number}" for number in range(8)]
    heard = [(number, "said", each) for number, each in enumerate(words[::-2], 3)]
    reads = [read("running", number) for number in range(3, 40)]
    assert not judged([*BEGUN, *(lost(say(each)) for each in words), *reads, events(*BORN, *heard, last=40)])
    assert judged(
        [*BEGUN, *(lost(say(each)) for each in words), *reads, events(*BORN, *heard, (20, *SAID[1:]), last=40)]
    )


def test_it_knows_the_promises_alone() -> None:
    source = Path(linearizability.__file__).read_text()
    imported = re.findall(r"^(?:from|import) (\S+)", source, re.MULTILINE)
    assert {*imported} == {"__future__", "collections", "collections.abc", "math", "typing"}
    assert len(source.splitlines()) <= 205


def test_a_search_of_too_many_orders_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of these words, whose answers were lost, may have been said, in any order; in none it waits for nothing."""
    says = [Operation("say", 1.0, run="run_1", asked=f"words {number}") for number in range(7)]
    read = Operation("read", 2.0, 3.0, "run_1", None, ("requires_action", 9, frozenset()))
    ops = [(KEY, op) for op in (Operation("submit", 0.0, 0.5, answer="run_1"), *says, read)]
    assert not any(each.endswith(UNDECIDED) for each in violations(ops))
    monkeypatch.setattr(linearizability, "_MOST", 50)
    assert [each.endswith(UNDECIDED) for each in violations(ops)][-1:] == [True]
