"""What holds of the steps that are in flight, and of those that wait for the turn of their tenant."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from palaver.store.redis import keys
from palaver.vocabulary.ids import tenant_of
from palaver.vocabulary.step_kinds import MODEL, QUEUES, WINDOW

if TYPE_CHECKING:
    from tests.contract.invariants import Shard


def check_turns(shard: Shard) -> None:
    """Assert that nothing is forgotten or counted twice, and that nothing waits that has room."""
    in_flight: defaultdict[str, set[str]] = defaultdict(set)
    backlogs: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    held: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for run_id, steps in shard.steps.items():
        owner = keys.owner(tenant_of(run_id))
        for name, step in steps.items():
            member = f"{run_id}/{name}"
            if step["state"] == "leased" or member in shard.ready[step["queue"]]:
                in_flight[owner].add(member if "/" in name else run_id)
            elif step["state"] == "ready":
                backlogs[owner, step["queue"]].add(member)
                held[step["queue"]][member] = [run_id, shard.runs[run_id]["conversation"], name, step["deliveries"]]
    assert shard.in_flight == in_flight, "what is in flight"
    assert {place: set(members) for place, members in shard.backlogs.items()} == backlogs, "what waits for its turn"
    queues = {*QUEUES, *shard.ready, *(queue for _, queue in (*shard.turns, *backlogs))}
    for queue in queues:
        waiting = {owner for owner, of in backlogs if of == queue}
        turns, capped, ahead = (set(shard.turns[kind, queue]) for kind in ("turns", "capped", "ahead"))
        assert turns | capped == waiting, f"{queue}: whose turn may come"
        assert not turns & capped, f"{queue}: a tenant has two places"
        assert not ahead & waiting, f"{queue}: a tenant has two places"
        details = {member: delivery[:4] for member, delivery in shard.undelivered[queue].items()}
        assert details == held[queue], f"{queue}: what the deliveries are to say"
        assert set(shard.turns["held_back", queue]) == set(held[queue]), f"{queue}: since when they wait"
        free = {owner for owner in turns if not _is_at_cap(shard, owner)}
        least = WINDOW if queue == MODEL.queue else 1
        assert not free or len(shard.ready[queue]) >= least, f"{queue}: {free} wait, and there is room"
        assert all(_is_at_cap(shard, owner) for owner in capped), f"{queue}: {capped} are not at their cap"
    capped_in: defaultdict[str, set[str]] = defaultdict(set)
    for kind, queue in shard.turns:
        for owner in shard.turns[kind, queue] if kind == "capped" else ():
            capped_in[owner].add(queue)
    assert shard.capped_in == capped_in, "where tenants are at their cap"


def _is_at_cap(shard: Shard, owner: str) -> bool:
    most = shard.caps.get(f"{owner}max_in_flight")
    return most is not None and len(shard.in_flight.get(owner, ())) >= most
