"""Runs of every kind by the thousand, and what a stack holds before and after them."""

from __future__ import annotations

import os
import random
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from features.schedules import schedule_keys
from features.statistics import statistics_keys
from features.webhooks import webhook_keys
from palaver.store.redis import keys
from tests.process.cluster import Cluster
from tests.process.inputs import decision
from tests.redis_cluster import ON_CLUSTER
from tests.waiting import eventually

KINDS: Final = ("echo", "echo", "tools", "fail", "retry", "cancel", "leave", "steer", "approve", "fork", "delete")
UNDER_WAY: Final = 60
"""Runs at once, about."""
BLOCK: Final = 500
"""Runs between two breaths."""
SLACK: Final = 24
"""Connections that pools may have opened meanwhile and keep."""
GROWTH: Final = 1.15
"""Of a process's RAM, by fragments."""
COUNTED: Final = (
    *(
        keys.counts("00"),
        statistics_keys.journal("00"),
        statistics_keys.statistics("00"),
        keys.usage("00", 0).removesuffix("0"),
    ),
    *(keys.fair("00"), keys.ahead("00", ""), schedule_keys.SCHEDULES_COUNTS, webhook_keys.WEBHOOKS_COUNTS),
)
_SHARD: Final = re.compile(r"^\{p\w\w\}")
SERVERS: Final = 3 if ON_CLUSTER else 1
"""That have the store."""
CACHES: Final = 20 << 20
"""Bytes that a process may keep for later: a model worker has the conversations that it knows, 2 KB each here."""


@contextmanager
def brief(folder: Path, retention: float) -> Iterator[Cluster]:
    """A stack that keeps what has ended for `retention` seconds only."""
    with Cluster(folder, environment={"PALAVER_RETENTION": str(retention)}) as cluster:
        yield cluster


@dataclass(frozen=True)
class Footprint:
    """What a stack holds."""

    keys: frozenset[str]
    """Of Redis, but for those of providers and of the brokers' own, and for counts and ledgers, which outlive what they
    count. A list of runs is one as long as it has any."""
    memory: int
    """Bytes that Redis uses."""
    connections: int
    """To Redis."""
    channels: int
    """That somebody listens to."""
    files: dict[str, int]
    """Open file descriptors of each process."""
    resident: dict[str, int]
    """Bytes of RAM of each process."""

    @classmethod
    def of(cls, cluster: Cluster) -> Footprint:
        """As it is now."""
        cluster.forget_cool_downs()
        pids = {
            f"{name}-{i}": pid for name in ("api", "worker", "tools") for i, pid in enumerate(cluster.stack.pids(name))
        }
        pids |= {f"child-{i}": pid for i, pid in enumerate(cluster.children_of("tools"))}
        with cluster.redis() as server:
            names = frozenset(name.decode() for name in server.scan_iter(count=1000))
            infos = [server.info()] if cluster.masters is None else cluster.masters.infos()
            return cls(
                keys=frozenset(
                    name
                    for name in names
                    if name.startswith(("{p", "palaver:")) and not _SHARD.sub("{p00}", name).startswith(COUNTED)
                ),
                memory=sum(info["used_memory"] for info in infos),
                connections=sum(info["connected_clients"] for info in infos),
                channels=len(server.pubsub_channels("{p*")),
                files={name: open_files(pid) for name, pid in pids.items()},
                resident={name: resident(pid) for name, pid in pids.items()},
            )

    def told(self) -> str:
        """For people."""
        mib = {name: round(bytes_ / 2**20, 1) for name, bytes_ in self.resident.items()}
        return (
            f"{len(self.keys)} keys, {self.memory / 2**20:.2f} MiB, {self.connections} connections, files {self.files},"
            f" MiB {mib}"
        )


def open_files(pid: int) -> int:
    """How many file descriptors a process has."""
    return len(os.listdir(Path(f"/proc/{pid}/fd")))


def resident(pid: int) -> int:
    """How many bytes of RAM a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Crowd:
    """Clients that submit runs of every kind and do to them what clients do."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.made: Counter[str] = Counter()
        self.submitted: list[str] = []
        self.deleted: set[str] = set()
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._going: list[str] = []
        self._later: list[tuple[Callable[[str], bool], str]] = []
        """What is done to a run as soon as it can be: answers whether it was."""

    def run(self, count: int) -> None:
        """So many runs, to their ends."""
        for _ in range(count):
            kind = self._chance.choice(KINDS)
            self.made[kind] += 1
            getattr(self, f"_{kind}")()
            if len(self._going) >= UNDER_WAY:
                self._see_to(UNDER_WAY // 2)
        self._see_to(0)

    def _see_to(self, left: int) -> None:
        def settled() -> bool:
            self._later = [(do, run_id) for do, run_id in self._later if not do(run_id)]
            self._going = [run_id for run_id in self._going if not self._over(run_id)]
            return len(self._going) <= left and not self._later

        eventually(settled, why=f"runs go on: {self._going[:5]}, {self._later[:5]}")

    def _over(self, run_id: str) -> bool:
        """Ended; perhaps so long ago that it is gone."""
        answer = self._cluster.http.get(f"/v1/runs/{run_id}")
        return answer.status_code == 404 or answer.json()["times"]["ended_at"] is not None

    def _add(self, run_id: str) -> None:
        self.submitted.append(run_id)
        self._going.append(run_id)

    def _submit(self, model: str, **more: Any) -> str:
        run_id = self._cluster.submit(model, **more)
        self._add(run_id)
        return run_id

    def _echo(self) -> None:
        self._submit("echo", key=uuid.uuid4().hex)

    def _tools(self) -> None:
        self._submit("parallel-2+use-each", tools=["calculator", "record"])

    def _fail(self) -> None:
        self._submit("401")

    def _retry(self) -> None:
        self._submit("say-30+rate-200+cut-1-5")

    def _cancel(self) -> None:
        run_id = self._submit("say-400+rate-20")
        self._later.append((lambda run_id: self._cluster.cancel(run_id) < 500, run_id))

    def _leave(self) -> None:
        """A client that watches from the start and goes in mid-stream."""
        body = self._cluster.body("say-20+rate-200")
        headers = {"Accept": "text/event-stream"}
        with self._cluster.http.stream("POST", "/v1/runs", json=body, headers=headers) as answer:
            self._add(answer.headers["location"].rpartition("/")[2])
            next(answer.iter_bytes())

    def _steer(self) -> None:
        run_id = self._submit("say-20+rate-200")
        self._cluster.put(run_id, {"type": "message", "content": "more"}, key=uuid.uuid4().hex)

    def _approve(self) -> None:
        run_id = self._submit("tool-1", tools=["send"])
        approval = decision("all", "edit", arguments={"seconds": 0})

        def approve(run_id: str) -> bool:
            pending = self._cluster.run(run_id).pending_actions
            items = [{**approval, "action_id": action.id} for action in pending]
            return bool(items) and self._cluster.put(run_id, *items, key=uuid.uuid4().hex).status_code < 300

        self._later.append((approve, run_id))

    def _fork(self) -> None:
        def fork(run_id: str) -> bool:
            if not self._over(run_id):
                return False
            key = {"Idempotency-Key": uuid.uuid4().hex}
            answer = self._cluster.http.post(f"/v1/runs/{run_id}/retry", json={"from_step": 1}, headers=key)
            assert answer.status_code == 202, answer.text
            self._add(answer.json()["id"])
            return True

        self._later.append((fork, self._submit("echo")))

    def _delete(self) -> None:
        def delete(run_id: str) -> bool:
            if not self._over(run_id):
                return False
            self.deleted.add(run_id)
            if self._chance.random() < 0.5:
                conversation = self._cluster.run(run_id).conversation_id
                return self._cluster.http.delete(f"/v1/conversations/{conversation}").status_code == 204
            return self._cluster.http.delete(f"/v1/runs/{run_id}").status_code == 204

        self._later.append((delete, self._submit("echo")))


def leave_nothing(
    cluster: Cluster,
    crowd: Crowd,
    *,
    warm_up: int,
    runs: int,
    within: float,
    breathe: Callable[[], None] = lambda: None,
) -> None:
    """Make so many runs; once their retention is over, the stack must hold what it held before them. After every 500
    runs, which have ended by then, it takes a breath."""
    children = {str(pid) for pid in cluster.all_children()}
    with cluster.redis() as server:

        def all_reported() -> bool:
            """A child reports itself a moment after it is there; until then its worker does so for the place."""
            names: Any = server.zrange("palaver:workers", 0, -1)
            ids = [name.decode().rpartition("/")[2] for name in names]
            return len(ids) == 1 + len(children) and children <= {*ids}

        eventually(all_reported)
    empty = Footprint.of(cluster)
    crowd.run(warm_up)
    before = Footprint.of(cluster)
    print(f"before: {before.told()}")
    for done in range(0, runs, BLOCK):
        crowd.run(min(BLOCK, runs - done))
        breathe()
    after = before

    def flat() -> bool:
        nonlocal after
        after = Footprint.of(cluster)
        assert not after.keys - empty.keys, sorted(after.keys - empty.keys)[:10]
        assert after.channels == 0
        assert after.connections <= before.connections + SLACK * SERVERS, (before.connections, after.connections)
        for name, files in after.files.items():
            assert files <= before.files[name] + SLACK, (name, before.files[name], files)
        return True

    eventually(flat, within=within, every=0.5)
    print(f"after {runs} runs ({dict(crowd.made)}): {after.told()}")
    for name, bytes_ in after.resident.items():
        assert bytes_ <= before.resident[name] * GROWTH + CACHES, (name, before.resident[name], bytes_)
    assert after.memory <= empty.memory + 3 * 2**20 * SERVERS, (empty.memory, after.memory)
    listed = cluster.http.get("/v1/runs").json()
    assert (listed["data"], listed["has_more"]) == ([], False)
