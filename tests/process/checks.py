"""What must be true after any test, whatever was killed: gathers the evidence and has it judged (tests/checkers)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tests.checkers import CHECKERS, Violation, violations
from tests.checkers.evidence import Evidence, History, calls_by_run, keys_of, read_histories, starts_by_run
from tests.model_server import LedgerEntry
from tests.process.cluster import Cluster
from tests.waiting import PATIENCE, eventually

_ERROR: Final = re.compile(r"[\w.<>]+(:|$)")
"""The end of a traceback: the name of an error, and what it says."""


def check(cluster: Cluster, within: float = PATIENCE) -> Evidence:
    """Every run of the test ended, its conversation is whole, and nothing is left over: what was looked at."""
    evidence = collect(cluster, within)
    _raise(violations(evidence, cluster.invariants))
    check_logs(cluster)
    return evidence


def check_conversations(cluster: Cluster, run_ids: Sequence[str], invariants: Iterable[str] = CHECKERS) -> None:
    """The conversations of these runs, which have ended and are all that there were in them, are whole."""
    _raise(violations(gather(cluster, run_ids), invariants))


def collect(cluster: Cluster, within: float = PATIENCE) -> Evidence:
    """The evidence of a test that is over; each of its runs has so many seconds left to end."""
    unended: list[str] = []
    for run_id in cluster.submitted:
        try:
            cluster.ended(run_id, 0.1 if unended else within)
        except AssertionError as error:
            unended.append(str(error))
    left = {} if unended else what_is_left(cluster)
    return replace(gather(cluster, cluster.submitted), unended=unended, left=left)


def gather(cluster: Cluster, run_ids: Iterable[str]) -> Evidence:
    """The conversations of these runs, which are all that there were in them, and all ledgers."""
    histories = cluster.ask(lambda store: read_histories(store, run_ids))
    with cluster.redis() as server:
        pipeline = server.pipeline(transaction=False)
        for history in histories:
            for key in keys_of(history):
                pipeline.ttl(key)
        lives = iter(pipeline.execute())
    # -1: it has no time to live; -2: it is gone.
    histories = [replace(each, immortal=[key for key in keys_of(each) if next(lives) == -1]) for each in histories]
    starts = starts_by_run(cluster.tool_ledger())
    return Evidence(histories, _calls(cluster, histories), starts, at=time.time())


def _calls(cluster: Cluster, histories: Iterable[History]) -> Mapping[str, Sequence[LedgerEntry]]:
    """What the model server was asked. It notes how a call ended a moment behind the last byte, when the run may be
    over; and never, if it was killed."""
    over = {run.id for history in histories for run, _ in history.ended}

    def look() -> Mapping[str, Sequence[LedgerEntry]]:
        return calls_by_run(cluster.model_calls())

    def all_noted() -> bool:
        return not any(call.outcome == "open" for run_id, calls in look().items() if run_id in over for call in calls)

    with suppress(AssertionError):
        eventually(all_noted, within=10)
    return look()


def what_is_left(cluster: Cluster) -> dict[str, Any]:
    """Of steps that are open, due, in flight or in a backlog, of reservations, and of messages in the broker, once it
    does not get less."""
    with cluster.redis() as connection:
        keys = partial(cluster.of_the_store, server=connection)

        def left() -> dict[str, Any]:
            sets = ("due", "ready:model", "ready:tools", "held")
            found: dict[str, Any] = {name: [connection.zrange(key, 0, 5) for key in keys(name)] for name in sets}
            found |= {f"messages in {name}": depth for name, depth in cluster.broker.depths().items()}
            for kind in ("steps", "undelivered", "held_back", "turns", "capped", "backlog"):
                found[kind] = keys(f"{kind}:*")
            found["in flight"] = [*keys("in_flight"), *keys("@*:in_flight")]
            found["reserved"] = sum(int(connection.hget(key, "reserved") or 0) for key in keys("meters"))
            return {name: some for name, some in found.items() if some}

        try:
            eventually(lambda: not left())
        except AssertionError:
            return left()
    return {}


def check_logs(cluster: Cluster) -> None:
    """No process of Palaver logged a traceback that the test did not expect."""
    for name, text in cluster.new_logs().items():
        if name.startswith("fake_provider"):
            continue
        before, *traces = text.split("Traceback (most recent call last):")
        for trace in traces:
            # Who expects any expects that one is cut short, too.
            expected = cluster.expected_in_logs and (
                _is_cut_short(trace) or any(words in trace for words in cluster.expected_in_logs)
            )
            assert expected, f"{name} logged a traceback:\n{before[-500:]}{'Traceback:'.join(traces)[:6000]}"


def _is_cut_short(trace: str) -> bool:
    """Whether a traceback does not come to its error: its process was killed meanwhile. The next one may go on in the
    same log, and a worker hands on what its child writes."""
    lines = [line.rpartition("outside a step: ")[2] for line in trace.splitlines()]
    after = next((line for line in lines if line and not line.startswith(" ")), "")
    return _ERROR.match(after) is None


def _raise(found: Sequence[Violation]) -> None:
    assert not found, "\n".join(map(str, found))
