"""Many watchers of one API process, all at the same moment: each of them sees its run end."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

import httpx
import pytest

from features.stack.ports import free_port
from palaver.config.settings import Settings
from palaver.schemas.models import AgentSpec, Message, Submission
from palaver.steps.leases import Delta, Lease
from palaver.steps.verdicts import Finish
from palaver.store import Store
from palaver.vocabulary.lifecycle import StopReason
from tests.process.api_alone import api_alone
from tests.process.cluster import Cluster
from tests.process.crowd import crowd, stall
from tests.process.one_more import one_more
from tests.waiting import PATIENCE, eventually

pytestmark = pytest.mark.process

MANY: Final = 150
THOUSAND: Final = 1000
FILES: Final = 4096
"""Enough for a thousand connections on either side of a process, and as many stalled ones."""


@pytest.fixture
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < FILES:
        pytest.skip(f"a process may not have {FILES} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(FILES, before[0]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("stalled", [pytest.param(0, marks=pytest.mark.chaos), MANY])
def test_watchers_of_one_run_that_all_come_at_once(cluster: Cluster, stalled: int) -> None:
    events = f"/v1/runs/{cluster.submit('say-40+rate-20')}/events"
    saw = asyncio.run(crowd(cluster.stack.url, [events] * MANY, [events] * stalled))
    assert saw == {"finished": MANY}
    assert "a stream broke" not in cluster.new_log("api")


def test_watchers_of_many_runs_that_all_come_at_once(cluster: Cluster) -> None:
    runs = asyncio.run(submitted(cluster, MANY // 3))
    assert asyncio.run(crowd(cluster.stack.url, paths(runs) * 3)) == {"finished": MANY}


def test_long_polls_that_all_come_at_once(cluster: Cluster) -> None:
    run_id = cluster.submit("say-40+rate-20")
    assert asyncio.run(polled(cluster.stack.url, run_id, MANY)) == {"200 completed": MANY}


@pytest.mark.chaos
@pytest.mark.parametrize("stalled", [0, THOUSAND])
def test_a_thousand_watchers_of_one_run(cluster: Cluster, many_files: None, stalled: int) -> None:
    port = str(free_port())
    with one_more(cluster, "api", name="crowded", PALAVER_API_PORT=port):
        events = f"/v1/runs/{cluster.submit('say-100+rate-20')}/events"
        saw = asyncio.run(crowd(f"http://127.0.0.1:{port}", [events] * THOUSAND, [events] * stalled))
        assert saw == {"finished": THOUSAND}
        assert asyncio.run(polled(f"http://127.0.0.1:{port}", cluster.submit("say-40+rate-10"), THOUSAND)) == {
            "200 completed": THOUSAND
        }


@pytest.mark.chaos
def test_a_thousand_watchers_of_a_thousand_runs(cluster: Cluster, many_files: None) -> None:
    port = str(free_port())
    with one_more(cluster, "api", name="crowded", PALAVER_API_PORT=port):
        runs = paths(asyncio.run(submitted(cluster, THOUSAND)))
        assert asyncio.run(crowd(f"http://127.0.0.1:{port}", runs, runs)) == {"finished": THOUSAND}


def test_watchers_that_never_read_cost_bounded_memory() -> None:
    """Each has room for a piece of the stream in the process and what its socket holds, not for all of it."""
    with api_alone(1024) as api, ExitStack() as stack:
        run_id, size = asyncio.run(a_long_run(api.redis_url))
        events = f"/v1/runs/{run_id}/events"
        assert asyncio.run(crowd(api.url, [events] * 3)) == {"finished": 3}
        before = api.memory

        async def stalled() -> None:
            for client in await asyncio.gather(*(stall(api.url, events) for _ in range(60))):
                stack.enter_context(client)

        asyncio.run(stalled())
        eventually(
            lambda: (
                "\npalaver_api_watchers 60\n" in httpx.get(f"{api.url}/metrics", trust_env=False, timeout=PATIENCE).text
            )
        )
        assert asyncio.run(crowd(api.url, [events] * 3)) == {"finished": 3}
        assert api.memory - before < 60 * size / 4
        api.child.terminate()
        # It does not wait for them either.
        eventually(lambda: not api.child.running)


async def a_long_run(redis_url: str) -> tuple[str, int]:
    """A run that has ended, and the bytes of its events."""
    text = "a" * 60_000
    async with Store.connect(Settings(redis_url=redis_url)) as store:
        agent = AgentSpec(model="fake/none")
        run_id = (await store.runs.submit(Submission(agent=agent, input="hello"), idempotency_key=None)).run_id
        run = await store.runs.get(run_id)
        lease = await store.steps.claim(
            run_id, run.conversation_id, "1", queues=("model",), worker="w", nonce="n", known=0
        )
        assert isinstance(lease, Lease)
        for _ in range(500):
            await store.steps.write_deltas([Delta(lease, text)])
        await store.steps.settle(lease, Finish(Message(role="assistant", content="done"), StopReason.END_TURN))
    return run_id, 500 * len(text)


async def submitted(cluster: Cluster, count: int) -> list[str]:
    """The ids of so many runs."""
    slots = asyncio.Semaphore(20)
    async with httpx.AsyncClient(base_url=cluster.stack.url, timeout=30, trust_env=False) as http:

        async def submit() -> str:
            async with slots:
                answer = await http.post("/v1/runs", json=cluster.body("echo"))
            assert answer.status_code == 202, answer.text
            return str(answer.json()["id"])

        runs = await asyncio.gather(*(submit() for _ in range(count)))
    cluster.submitted += runs
    return runs


def paths(runs: Sequence[str]) -> list[str]:
    """Where their events are."""
    return [f"/v1/runs/{run_id}/events" for run_id in runs]


async def polled(url: str, run_id: str, count: int) -> Counter[str]:
    """What so many hear who wait for the run's end."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, limits=limits) as http:

        async def poll() -> str:
            answer = await http.get(f"/v1/runs/{run_id}?wait=60&until=terminal")
            return f"{answer.status_code} {answer.json().get('status')}"

        return Counter(await asyncio.gather(*(poll() for _ in range(count))))
