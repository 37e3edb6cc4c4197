"""Many real clients of both generations at once, while workers are killed and the API is restarted."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from palaver.store import Store
from tests.chaos.seeds import seeded
from tests.openhands.client import OpenHandsClient
from tests.openhands.crowd import Talkers, Told, check_outcome, events_there
from tests.process.cluster import Cluster
from tests.waiting import eventually

pytestmark = pytest.mark.process
Trouble = Callable[[Cluster, random.Random], None]
BUSY: Final = 600.0
"""Seconds for what a hundred clients do on a machine that is busy."""
WORKERS: Final = {"worker": 3, "tools": 2}


def test_a_dozen_conversations_a_kill_and_a_restart(
    cluster: Cluster, both_generations: Mapping[str, OpenHandsClient], tmp_path: Path
) -> None:
    _, chance = seeded()
    with Talkers(f"{cluster.stack.url}/openhands", tmp_path, both_generations, each=6, ms=1000) as talkers:
        ordeal(cluster, talkers, chance, [kill, restart])


@pytest.mark.chaos
def test_a_hundred_conversations_two_kills_and_two_restarts(
    cluster: Cluster, both_generations: Mapping[str, OpenHandsClient], tmp_path: Path
) -> None:
    _, chance = seeded()
    troubles = [kill, kill, restart, restart]
    chance.shuffle(troubles)
    with Talkers(f"{cluster.stack.url}/openhands", tmp_path, both_generations, each=50, ms=4000) as talkers:
        ordeal(cluster, talkers, chance, troubles)


def ordeal(cluster: Cluster, talkers: Talkers, chance: random.Random, troubles: Sequence[Trouble]) -> None:
    """All run at once while there is trouble, and again when it is over; what each client saw is what happened."""
    for name, count in WORKERS.items():
        for _ in range(count - 1):
            cluster.start(name)
    talkers.say("open")
    eventually(lambda: talkers.done("open"), within=BUSY, every=0.5)
    talkers.say("run")
    # What is asked of an API that is away is refused, and rightly so.
    eventually(lambda: len({call.run for call in cluster.model_calls()}) == len(talkers), within=BUSY, every=0.2)
    assert not talkers.done("run")
    for trouble in troubles:
        pass_by(cluster, talkers, calls=chance.randrange(2, 20))
        trouble(cluster, chance)
    eventually(lambda: talkers.done("run"), within=BUSY, every=0.5)
    told = talkers.told()
    for each in told.values():
        check_outcome(each, "run", each.plot.ends)
    assert {name: each.plot.ends for name, each in told.items()} == statuses(cluster, talkers)
    finishing = [name for name, each in told.items() if not each.plot.fails]
    talkers.say("again", finishing)
    eventually(lambda: talkers.done("again", finishing), within=BUSY, every=0.5)
    for name, each in talkers.told().items():
        if name in finishing:
            check_outcome(each, "again", "finished")
    # All of it is judged by the checkers, once the test is over.
    cluster.submitted += runs_of(cluster, talkers)
    for each in told.values():
        heard_everything(cluster, talkers, each)


def heard_everything(cluster: Cluster, talkers: Talkers, told: Told) -> None:
    """The client's callback was told every event once and in order. It reads what was before it by HTTP."""
    there = [event["id"] for event in events_there(cluster.http, told.id)]
    eventually(lambda: talkers.told()[told.name].heard == there, why=told.name)


def pass_by(cluster: Cluster, talkers: Talkers, calls: int) -> None:
    """Wait until models were asked so often, or nobody asks any more."""
    asked = len(cluster.model_calls()) + calls
    eventually(lambda: len(cluster.model_calls()) >= asked or talkers.done("run"), within=BUSY)


def kill(cluster: Cluster, chance: random.Random) -> None:
    """Kill one of the workers that there are several of."""
    role = chance.choice([name for name in WORKERS if len(cluster.stack.pids(name)) > 1])
    cluster.kill(role, chance.randrange(len(cluster.stack.pids(role))))


def restart(cluster: Cluster, chance: random.Random) -> None:
    """Restart the API, as a deployment does."""
    api = cluster.terminate("api")
    eventually(lambda: not api.running)
    cluster.start("api")


def statuses(cluster: Cluster, talkers: Talkers) -> dict[str, str]:
    """The execution status of each conversation, as the server tells it."""
    return {name: status_of(cluster, each) for name, each in talkers.told().items()}


def status_of(cluster: Cluster, told: Told) -> str:
    """The same of one."""
    answer = cluster.http.get(f"/openhands/api/conversations/{told.id}")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["execution_status"])


def runs_of(cluster: Cluster, talkers: Talkers) -> list[str]:
    """All runs of the conversations, in the order in which they were begun."""

    async def read(store: Store) -> list[str]:
        found: dict[str, None] = {}
        for each in talkers.told().values():
            conversation = store.runs.conversation_of_number(UUID(each.id))
            found |= dict.fromkeys(entry.run_id for entry in await store.runs.entries(conversation, limit=10_000))
        return [run_id for run_id in found if run_id]

    return cluster.ask(read)
