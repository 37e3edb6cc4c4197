"""Conversations over each dialect, while workers and the API are killed: each client has what the log has, to the byte,
nothing behind an end, and no answer twice.

OpenHands' own clients have files of their own (tests/openhands/test_crowds.py).
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from features.stack.ports import HOST
from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.chaos.zygote import Forked, Zygote, start_all
from tests.process.checks import check
from tests.process.cluster import Cluster
from tests.process.talkers import TALKERS, ChatTalker
from tests.process.talking import PATIENCE, Talker, read_log
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

VICTIMS = {"worker": 2, "tools": 1, "api": 1}
KILLED = ("api", "worker", "tools", "api", "worker")
"""In turns. Each end of the API meets all who listen."""
MODELS = {
    "talks": "say-60+rate-100",
    "works": "tool-2+use-each+say-30+rate-100",
    "thinks": "steps-1-2+use-each+say-20+rate-100+reasoning",
}
TOOLS = ("record", "calculator", "record_idempotent")
TURNS = ("hello", "and then?")
ROUND = 25
"""Conversations of each dialect between two looks at everything."""


def test_a_few_conversations_and_kills(cluster: Cluster, zygotes: Mapping[str, Zygote]) -> None:
    made = have_conversations(cluster, zygotes, of_each=2, kills=5, at_once=6)
    assert broken(made).total(), "no client has noticed any of the kills"


@pytest.mark.chaos
def test_two_hundred_conversations_of_each_and_sixty_kills(cluster: Cluster, zygotes: Mapping[str, Zygote]) -> None:
    made = have_conversations(cluster, zygotes, of_each=scaled(200), kills=scaled(60), at_once=24)
    wires = {talker.wire for talker in TALKERS}
    assert broken(made).keys() == wires, "a wire that was never broken shows nothing"


def have_conversations(
    cluster: Cluster, zygotes: Mapping[str, Zygote], *, of_each: int, kills: int, at_once: int
) -> Counter[str]:
    """So many conversations over each dialect, through so many kills in all; what happened to them."""
    seed, chance = seeded()
    for name, model in MODELS.items():
        agent = {"model": f"fake/{model}", "tools": TOOLS}
        assert cluster.http.put(f"/v1/agents/{name}", json=agent).status_code in (200, 201)
    made: Counter[str] = Counter()
    violations = 1
    try:
        with dying(cluster, zygotes) as victims:
            for begun in range(0, of_each, ROUND):
                count = min(ROUND, of_each - begun)
                due = round(kills * (begun + count) / of_each) - made["kills"]
                made += one_round(cluster, victims, chance, range(begun, begun + count), due, at_once)
        violations = 0
    finally:
        print(dict(made))
        record("dialects under kills", seed=seed, counts=made, violations=violations)
    return made


def broken(made: Mapping[str, int]) -> Counter[str]:
    """How often clients of each wire lost their connection amid an answer."""
    ends = " broke"
    return Counter({name.removesuffix(ends): number for name, number in made.items() if number and name.endswith(ends)})


@contextmanager
def dying(cluster: Cluster, zygotes: Mapping[str, Zygote]) -> Iterator[Mapping[Forked, str]]:
    """Processes that may be killed, in the place of the cluster's own; its API stays, for what the test itself asks."""
    for line in ("worker", "tools"):
        cluster.kill(line)
    try:
        yield {zygotes[line].child(): line for line, count in VICTIMS.items() for _ in range(count)}
    finally:
        for zygote in zygotes.values():
            zygote.kill_children()


def one_round(
    cluster: Cluster,
    victims: Mapping[Forked, str],
    chance: random.Random,
    numbers: Sequence[int],
    kills: int,
    at_once: int,
) -> Counter[str]:
    """Conversations with these numbers over each dialect, and what happened to them."""
    # Of a child that starts as its worker dies.
    cluster.expect_traceback("WorkerLostError", "BrokenPipeError")
    known = all_runs(cluster)
    start_all(victims)
    eventually(lambda: all(victim.ready for victim in victims))
    port = next(victim for victim, line in victims.items() if line == "api").environment["PALAVER_API_PORT"]
    mark = f"{chance.getrandbits(40):x}"
    talkers = [
        kind(f"http://{HOST}:{port}", [*MODELS][number % 3], f"{mark}-{place}-{number}", random.Random(chance.random()))
        for number in numbers
        for place, kind in enumerate(TALKERS)
    ]
    with ThreadPoolExecutor(at_once) as pool:
        talks = [pool.submit(talker.converse, TURNS) for talker in talkers]
        for number in range(kills):
            # Amid the others, once so many turns are over.
            turns = len(TURNS) * len(talks) * (2 * number + 1) // (2 * kills)
            eventually(partial(came_to, turns, talkers, talks), within=PATIENCE)
            kill_one(victims, KILLED[number % len(KILLED)], chance)
        for talk in talks:
            talk.result(timeout=PATIENCE)
    for talker in talkers:
        compare(cluster, talker)
    runs = [run for talker in talkers for run in talker.runs]
    assert len(runs) == len(set(runs))
    assert all_runs(cluster) - known == set(runs), "a run that no client knows of: something was answered twice"
    # The second completion of a chat brings an answer with it, which no model of its run has given.
    cluster.submitted += [run for talker in talkers for run in talker.runs[: 1 if talker.wire == "OpenAI chat" else 2]]
    check(cluster)
    cluster.submitted.clear()
    cluster.mark_logs()
    made: Counter[str] = Counter({"kills": kills, "conversations": len(talkers)})
    for talker in talkers:
        made += Counter({f"{talker.wire} broke": talker.broken, f"{talker.wire} left": talker.left})
    return made


def came_to(turns: int, talkers: Sequence[Talker], talks: Sequence[Future[None]]) -> bool:
    """Whether so many turns are over, or something is wrong already."""
    wrong = any(talk.done() and talk.exception() for talk in talks)
    return wrong or sum(len(talker.runs) for talker in talkers) >= turns


def kill_one(victims: Mapping[Forked, str], line: str, chance: random.Random) -> None:
    """Kill a process of this kind, which is started again at once."""
    victim = chance.choice([each for each, of in victims.items() if of == line])
    eventually(lambda: victim.ready)
    victim.kill(signal.SIGKILL)
    start_all(victims)


def compare(cluster: Cluster, talker: Talker) -> None:
    """What the client has is what the log has."""
    log = talker.shown(read_log(cluster.http, talker.runs[-1]))
    assert talker.transcript == log, f"{talker.wire} {talker.name}, {talker.runs}"
    if isinstance(talker, ChatTalker):
        # Each completion has a conversation of its own.
        first = talker.shown(read_log(cluster.http, talker.runs[0]))
        assert talker.transcript[: len(first)] == first


def all_runs(cluster: Cluster) -> set[str]:
    """All runs that there are."""
    with cluster.redis() as server:
        lists: list[Any] = [server.zrange(key, 0, -1) for key in cluster.of_the_store("runs")]
        return {run.decode() for runs in lists for run in runs}
