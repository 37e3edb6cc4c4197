"""An archive through kills of workers, API, Redis and PostgreSQL: each conversation that rests is there, once and as it
was. With Redis lost, all of them are read, and go on."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.chaos.report import record
from tests.chaos.seeds import scaled, seeded
from tests.postgres import PostgresServer, running_postgres
from tests.process.cluster import Cluster
from tests.process.deeds import PNG
from tests.process.inputs import decision
from tests.waiting import eventually

pytestmark = pytest.mark.process

Shape = Callable[["Ledger"], Iterator[None]]
UNDER_WAY: Final = 10
VICTIMS: Final = ("worker", "tools", "api", "redis", "postgres", "postgres")


class Ledger:
    """What was asked for, and what became of it."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.runs: list[str] = []
        self.deleted: list[str] = []
        """Paths of what was deleted."""

    def submit(self, model: str, **more: Any) -> str:
        """Submit a run; its id."""
        run_id = self.cluster.submit(model, more.pop("text", "[[args {}]] look"), **more)
        self.runs.append(run_id)
        return run_id

    def ends(self, run_id: str) -> Iterator[None]:
        """Until the run has ended."""
        while not self.cluster.run(run_id).status.terminal:
            yield

    def conversation(self, run_id: str) -> str:
        """The conversation of a run."""
        return self.cluster.run(run_id).conversation_id

    def after(self, run_id: str, model: str = "echo", **more: Any) -> str:
        """Submit the next run of its conversation."""
        return self.submit(model, conversation_id=self.conversation(run_id), **more)

    def delete(self, path: str) -> None:
        """Delete it; for ever."""
        answer = self.cluster.http.delete(path)
        assert answer.status_code == 204, answer.text
        self.deleted.append(path)

    def forget(self, run_id: str) -> None:
        """It was deleted."""
        self.runs.remove(run_id)

    def shown(self) -> dict[str, Any]:
        """All that the API says of what there is to be, but for whether it has come from the archive."""
        said = dict[str, Any]()
        for run_id in self.runs:
            run = self._read(f"/v1/runs/{run_id}")
            place = f"/v1/conversations/{run['conversation_id']}"
            said[run_id] = run
            for path in (place, f"{place}/messages?limit=200"):
                said[path] = said.get(path) or self._read(path)
        return said

    def _read(self, path: str) -> Any:
        answer = self.cluster.http.get(path).raise_for_status().json()
        answer.pop("archived", None)
        return answer


def tools(ledger: Ledger) -> Iterator[None]:
    """Tools that may be begun again, and one that may not."""
    yield from ledger.ends(ledger.submit("tool-2+use-each", tools=["record_idempotent", "record"]))


def talk(ledger: Ledger) -> Iterator[None]:
    """Three turns."""
    run = ledger.submit("echo", text="one ü \u2028 \U0001f600")
    for text in ("two", "three"):
        yield from ledger.ends(run)
        run = ledger.after(run, text=text)
    yield from ledger.ends(run)


def approved(ledger: Ledger) -> Iterator[None]:
    """A call that a person approves."""
    run = ledger.submit("tool-1", text='[[args {"seconds": 0}]]', tools=["send"])
    while ledger.cluster.run(run).status != "requires_action":
        yield
    ledger.cluster.take(run, decision("all"))
    yield from ledger.ends(run)


def image(ledger: Ledger) -> Iterator[None]:
    """A message with an image."""
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image", "url": url}]
    body = {**ledger.cluster.body("echo"), "input": [{"role": "user", "content": parts}]}
    ledger.runs.append(ledger.cluster.post(body))
    yield from ledger.ends(ledger.runs[-1])


def forked(ledger: Ledger) -> Iterator[None]:
    """A run that is tried again from its second step, in a conversation of its own."""
    run = ledger.submit("tool-2", tools=["record_idempotent"])
    yield from ledger.ends(run)
    answer = ledger.cluster.http.post(f"/v1/runs/{run}/retry", json={"from_step": 2})
    assert answer.status_code == 202, answer.text
    ledger.runs.append(answer.json()["id"])
    yield from ledger.ends(ledger.runs[-1])


def rolled_back(ledger: Ledger) -> Iterator[None]:
    """A run whose words are withdrawn, and the next one."""
    run = ledger.submit("say-200+rate-50")
    yield
    ledger.cluster.cancel(run, mode="rollback")
    yield from ledger.ends(run)
    yield from ledger.ends(ledger.after(run))


def steered(ledger: Ledger) -> Iterator[None]:
    """Words of a user into a run that goes on."""
    run = ledger.submit("tool-2", text='[[args {"seconds": 0.3}]]', tools=["record_idempotent"])
    yield
    ledger.cluster.put(run, {"type": "message", "content": "in metres, please"})
    yield from ledger.ends(run)


def condensed(ledger: Ledger) -> Iterator[None]:
    """A conversation that is condensed."""
    run = ledger.submit("echo", agent={"condense_at_messages": 10})
    for number in range(6):
        yield from ledger.ends(run)
        run = ledger.after(run, text=f"turn {number}", agent={"condense_at_messages": 10})
    yield from ledger.ends(run)


def failed(ledger: Ledger) -> Iterator[None]:
    """A run that fails."""
    yield from ledger.ends(ledger.submit("401"))


def below(ledger: Ledger) -> Iterator[None]:
    """An agent that calls another one."""
    child = {"model": "fake/say-3"}
    agent = {"tools": ["agent_helper"], "subagents": {"agent_helper": {"agent": child}}}
    yield from ledger.ends(ledger.submit("tool-1+use-agent_helper", text='[[args {"task": "look"}]]', agent=agent))


def renamed(ledger: Ledger) -> Iterator[None]:
    """A conversation that changes after its end."""
    run = ledger.submit("echo")
    yield from ledger.ends(run)
    place = f"/v1/conversations/{ledger.conversation(run)}"
    assert ledger.cluster.http.patch(place, json={"title": "renamed", "tags": ["a"]}).status_code == 200


def long(ledger: Ledger) -> Iterator[None]:
    """A run that is archived while it goes on."""
    yield from ledger.ends(ledger.submit("parallel-40-14", tools=["tell_inline"]))


def deleted(ledger: Ledger) -> Iterator[None]:
    """A conversation that is deleted."""
    run = ledger.submit("echo")
    yield from ledger.ends(run)
    ledger.delete(f"/v1/conversations/{ledger.conversation(run)}")
    ledger.forget(run)


def shortened(ledger: Ledger) -> Iterator[None]:
    """A conversation of which a run is deleted."""
    first = ledger.submit("echo")
    yield from ledger.ends(first)
    yield from ledger.ends(ledger.after(first))
    ledger.delete(f"/v1/runs/{first}")
    ledger.forget(first)


SHAPES: Final[tuple[Shape, ...]] = (
    tools, talk, approved, image, forked, rolled_back, steered, condensed, failed, below, renamed, long, deleted,
    shortened,
)  # fmt: skip


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.mark.long
def test_a_few_conversations_of_all_shapes(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> None:
    keep_a_ledger(tmp_path_factory, postgres, conversations=2 * len(SHAPES), kills=10)


@pytest.mark.chaos
def test_many_conversations_of_all_shapes(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> None:
    keep_a_ledger(tmp_path_factory, postgres, conversations=scaled(1000), kills=scaled(300))


def keep_a_ledger(folder: pytest.TempPathFactory, postgres: PostgresServer, *, conversations: int, kills: int) -> None:
    """Have so many conversations through so many kills; then look for each of them, with Redis and without."""
    seed, chance = seeded()
    environment = {"PALAVER_ARCHIVE_URL": postgres.new_database()}
    with Cluster(folder.mktemp("ledger"), environment=environment) as cluster:
        ledger = Ledger(cluster, chance)
        made = have_conversations(ledger, postgres, conversations, kills)
        all_archived(cluster)
        assert verified(cluster) == f"{count_of(cluster)} conversations: 0 faults"
        before = ledger.shown()
        everything = listed(cluster)
        assert everything >= {*ledger.runs}
        with cluster.redis() as redis:
            redis.flushall()
        assert listed(cluster) == everything
        assert ledger.shown() == before
        for path in ledger.deleted:
            assert cluster.http.get(path).status_code == 404, path
        for run_id in ledger.runs[:: max(1, len(ledger.runs) // 20)]:
            cluster.goes_on(run_id)
    ends = Counter(str(each["status"]) for name, each in before.items() if name.startswith("run_"))
    record("archive", seed=seed, counts=made, ends=ends)


def listed(cluster: Cluster) -> set[str]:
    """The runs of all pages of the list."""
    found, cursor = set[str](), ""
    while True:
        page = cluster.http.get("/v1/runs", params={"limit": 50, "cursor": cursor}).raise_for_status().json()
        found |= {run["id"] for run in page["data"]}
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def have_conversations(ledger: Ledger, postgres: PostgresServer, conversations: int, kills: int) -> Counter[str]:
    """Keep some conversations under way until there were so many, and kill something now and then."""
    cluster, chance, made = ledger.cluster, ledger.chance, Counter[str]()
    going: list[Iterator[None]] = []
    moments = sorted(chance.sample(range(conversations), min(kills, conversations)))
    begun = 0
    while begun < conversations or going:
        while begun < conversations and len(going) < UNDER_WAY:
            shape = SHAPES[begun % len(SHAPES)]
            going.append(shape(ledger))
            made[shape.__name__] += 1
            begun += 1
            if moments and begun > moments[0]:
                moments.pop(0)
                victim = chance.choice(VICTIMS)
                made[f"kills of {victim}"] += 1
                kill(cluster, postgres, victim)
        for each in [*going]:
            try:
                next(each)
            except StopIteration:
                going.remove(each)
    return made


def kill(cluster: Cluster, postgres: PostgresServer, victim: str) -> None:
    """SIGKILL, and start it again."""
    if victim == "postgres":
        postgres.kill()
        postgres.start()
        return
    cluster.kill(victim)
    cluster.start(victim)


def all_archived(cluster: Cluster) -> None:
    """Wait until the archive lacks nothing."""
    with cluster.redis() as redis:
        eventually(lambda: not redis.keys("{p*}:unarchived"), within=300, why="something waits for the archive")


def verified(cluster: Cluster) -> str:
    """The last line of ``palaver archive verify``."""
    command = [sys.executable, "-m", "features.archive.program", "verify"]
    environment = {**cluster.children("worker")[0].environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def count_of(cluster: Cluster) -> int:
    """The number of conversations that the store has."""
    with cluster.redis() as redis:
        return sum(int(redis.zcard(key)) for key in cluster.of_the_store("convs", redis))
