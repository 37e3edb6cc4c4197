"""Is there an order of what clients did in which each run keeps every promise? Imports nothing of Palaver.

An operation takes effect at one moment between its request and its answer; one whose answer was lost, at any moment
after its request, or never. This looks for an order of such moments in which a run, with one client at a time, could
have answered so: Wing and Gong's search, with Lowe's memory of what was tried. Runs are independent: each is searched
alone, with all that was asked under its idempotency key. What workers do is no operation: in between, a run may go to
any status that `_LEADS_TO` has.

A store may lose its last writes, from `synced` until `rewound`, which is asked whether promises made meanwhile hold. An
operation that was under way then may have taken effect, been lost before it was promised, and been done again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

NEVER = math.inf  # when an answer came that was lost
UNDECIDED = "so many orders are possible that it is not known whether one keeps the promises"
_MOST = 20_000  # states of a search: half a minute at worst
_CHANGES = ("submit", "cancel", "decide", "say")
_FAILS = {"failed", "expired", "incomplete"}
_ENDS = {*_FAILS, "completed", "cancelled"}
_LEADS_TO = {  # by itself; by a decision it is running again, by a cancel cancelling
    "queued": {"queued", "running", "requires_action", "completed", *_FAILS},
    "running": {"running", "requires_action", "completed", *_FAILS},
    "requires_action": {"requires_action", *_FAILS},
    "cancelling": {"cancelling", "cancelled"},
    **{end: {end} for end in _ENDS},
}


class Operation(NamedTuple):
    """What a client did, `what` as in `_answered`, from `begun` to `ended`: seconds of one clock."""

    what: str
    begun: float
    ended: float = NEVER
    run: str = ""
    asked: Any = None
    answer: Any = None


class Run(NamedTuple):
    """What has to be so, by the operations so far."""

    id: str = ""
    status: str = ""  # empty before the submit
    last: int = 0  # so many events were there
    sealed: bool = False  # and there are no more
    events: tuple[Any, ...] = ()
    pending: frozenset[str] = frozenset()
    decided: frozenset[tuple[str, str, str]] = frozenset()  # action, decision, key of the request
    said: frozenset[str] = frozenset()
    past: frozenset[Any] = frozenset()  # what it was since the store was synced
    promised: tuple[Operation, ...] = ()  # and what was acknowledged

    @property
    def open(self) -> bool:
        return self.status not in _ENDS and self.status != "cancelling"


def _moved(run: Run, status: str) -> Iterator[Run]:
    """The run after it went to this status by itself, if it can. It does not complete while a call waits."""
    if status in _LEADS_TO[run.status] and not (status == "completed" and run.pending):
        yield run._replace(status=status, pending=frozenset() if status in _ENDS else run.pending)


def _seen(run: Run, events: tuple[Any, ...], status: str, last: int, pending: frozenset[str]) -> Iterator[Run]:
    """The run after `read` or `events` were answered so. What was seen before is still there."""
    for now in _moved(run, status):
        less = last < now.last or (now.sealed and last > now.last) or now.pending - pending
        odd = pending & {each[0] for each in now.decided} or bool(pending) > now.open
        if not (less or odd or (status == "requires_action") > bool(pending)):
            yield now._replace(last=last, sealed=status in _ENDS, pending=pending, events=events)


def _events(run: Run, last: int, events: tuple[Any, ...]) -> Iterator[Run]:
    """`events` was answered with the last number and all that stay, each with number, type and more: action.required
    with action and call, action.resolved with action and decision, tool.finished with the call, run.finished with the
    status; and said with words of the user."""
    numbers, kinds, more = [each[0] for each in events], [each[1] for each in events], defaultdict(list)
    waits: dict[str, str] = {}
    for number, kind, *rest in events:
        if number > last or "run.finished" in more or (kind == "tool.finished" and rest[0] in waits.values()):
            return
        waits |= {rest[0]: rest[1]} if kind == "action.required" else {}
        waits.pop(rest[0] if kind == "action.resolved" else "", None)
        more[kind].append(tuple(rest))
    decided, said = [each for each in more["action.resolved"] if each[1] != "cancelled"], more["said"]
    if any(len({*each}) < len(each) for each in (decided, said, more["tool.finished"])) or numbers != sorted(
        {*numbers}
    ):
        return
    started, cancelled, over = (each in kinds for each in ("run.started", "run.cancelling", "run.finished"))
    status = more["run.finished"][0][0] if over else "running" if started and run.status == "queued" else run.status
    if (
        cancelled != (run.status in ("cancelling", "cancelled"))
        or (over and last > numbers[-1])
        or events[: len(run.events)] != run.events
    ):
        return
    if not over and (status in _ENDS or started < (status in ("running", "requires_action"))):
        return
    words = {each[0] for each in said}
    if {*decided} != {each[:2] for each in run.decided} or words - run.said or (over and words != run.said):
        return
    yield from _seen(run, events, status, last, frozenset(waits))


def _answered(run: Run, op: Operation) -> Iterator[Run]:
    """What a run that is there, or is submitted, may be after the operation."""
    match op.what:
        case "submit":  # answered with the id
            if run.id in ("", op.answer) or not op.answer:
                yield run._replace(id=op.answer or run.id, status=run.status or "queued")
        case "read":  # answered with status, number of the last event, actions that are pending
            yield from _seen(run, run.events, *op.answer)
        case "events":
            yield from _events(run, *op.answer)
        case "cancel":
            if run.open or run.status in ("cancelling", "cancelled"):
                yield run._replace(status="cancelling", pending=frozenset()) if run.open else run
        case "decide":  # action, decision, and the key of the request; answered with True if another one had decided
            other = op.asked[0] in {each[0] for each in run.decided - {op.asked}}
            if op.asked in run.decided or other:
                yield from [run] * (other is bool(op.answer))
            elif run.open and not op.answer:
                pending = run.pending - {op.asked[0]}
                yield run._replace(status="running", pending=pending, decided=run.decided | {op.asked})
        case "say":  # words that no other request has
            yield from [run._replace(said=run.said | {op.asked})] * (run.open or op.asked in run.said)
        case "refused":  # 409, it has ended; for a cancel, otherwise than by one; what was asked, and how
            ends = {*_ENDS, "cancelling"} - ({"cancelled", "cancelling"} if op.asked[0] == "cancel" else set())
            for status in ends if op.asked[1] not in run.said | run.decided else ():
                yield from _moved(run, status)
        case "unknown":  # 409, there is no such action
            yield from [run] * (op.asked not in run.pending | {each[0] for each in run.decided})
        case "found":  # all runs that there are under the key
            yield from [run] * (len(op.answer) == bool(run.status) and run.id in ("", *op.answer))


def _after(run: Run, op: Operation) -> Iterator[Run]:
    """What the run may be after the operation; nothing, if it cannot be answered so."""
    if op.what == "synced":
        yield run._replace(past=frozenset({run._replace(past=frozenset(), promised=())}), promised=())
    elif op.what == "rewound":
        for before in run.past:
            kept = [before]
            for promise in run.promised if op.asked else ():
                kept = [after for each in kept for after in _after(each, promise)]
            yield from kept
    elif op.what == "amid":
        yield from _after(run, op.answer) if run.past else ()
    elif op.what == "gone":
        yield from [run] * (run.id != op.run)
    elif op.what in ("submit", "found") or (run.status and run.id in ("", op.run)):
        for now in _answered(run._replace(id=op.run or run.id), op):
            if run.past:
                promised = (*run.promised, op) if op.ended < NEVER and op.what in _CHANGES else run.promised
                now = now._replace(past=run.past | {now._replace(past=frozenset(), promised=())}, promised=promised)
            yield now


def unordered(operations: Iterable[Operation]) -> str:
    """Why operations on one run have no order in which it keeps its promises, or UNDECIDED; empty if they have one."""
    ops = sorted(operations, key=lambda each: each.begun)
    must = sum(1 << i for i, each in enumerate(ops) if each.ended < NEVER)
    best = (0, Run())
    stack, tried = [best], {best}
    while stack:
        if len(tried) > _MOST:
            return UNDECIDED
        done, run = stack.pop()
        if not must & ~done:
            return ""
        best = max(best, (done, run), key=lambda each: (each[0] & must).bit_count())
        left = [i for i in range(len(ops)) if not done >> i & 1]
        horizon = min(ops[i].ended for i in left)
        near = {i: {*_after(run, ops[i])} for i in left if ops[i].begun <= horizon}
        # What was only looked at, and tells nothing new, can as well come now.
        dull = [i for i in near if ops[i].what in ("read", "events", "refused") and near[i] == {run}]
        for i in dull[:1] or sorted(near, key=lambda i: (-ops[i].ended, -i)):
            new = {(done | 1 << i, after) for after in near[i]} - tried
            stack += new
            tried |= new
    left = [i for i in range(len(ops)) if not best[0] >> i & 1]
    return "\n".join([f"after {best[1]} none of these can be next:", *(str(ops[i]) for i in left[:9])])


def violations(histories: Iterable[tuple[str, Operation]], store: Iterable[Operation] = ()) -> list[str]:
    """What is wrong in operations, each with the idempotency key of its run, on a store of which this is known."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    keys, known = defaultdict(set), [*store]
    for key, op in histories:
        what, asked = op.asked if op.what == "refused" else (op.what, op.asked)
        again = Operation(what, op.begun, NEVER, op.run, asked, op.answer if what == "submit" else None)
        amid = [each for each in known if each.what == "rewound" and op.begun < each.ended and op.ended > each.begun]
        by_key[key] += [op, *(Operation("amid", op.begun, answer=again) for _ in amid[:2] if what in _CHANGES)]
        keys[op.answer if op.what == "submit" else op.run].add(key)
    shared = [f"{run} is the run of {found}" for run, found in keys.items() if run and len(found) > 1]
    return shared + [f"{key}: {why}" for key, ops in by_key.items() if (why := unordered([*ops, *known]))]
