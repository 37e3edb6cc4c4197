"""Cancels at every moment of a run that streams, runs parallel tools and waits for approvals.

Each position is a run in a conversation of its own. An acknowledged cancel ends it as cancelled, a refused one says
that it had ended, and the conversation takes its next run either way; the strict model server and the checks behind
every test (checks.py) see to the rest. In `make chaos`, every 5 ms, and at random moments of 2,000 runs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable

import httpx
import pytest

from tests.chaos.seeds import seeded
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

MODEL = "parallel-3-4+use-each+args-split-2+rate-70"
"""Four turns of three calls each, one of which awaits an approval; then an answer. Longer than the last position."""
TOOLS = ("record", "record_idempotent", "send")
MODES = ("now", "now", "graceful", "rollback")
LONGEST = 2500
"""Milliseconds after the submit of the last position."""
WITHIN = 40


def test_a_cancel_every_100_ms(cluster: Cluster) -> None:
    sweep(cluster, [ms / 1000 for ms in range(0, LONGEST, 100)], at_once=20)


@pytest.mark.chaos
def test_a_cancel_every_5_ms(cluster: Cluster) -> None:
    sweep(cluster, [ms / 1000 for ms in range(0, LONGEST, 5)], at_once=20)


@pytest.mark.chaos
def test_cancels_at_random_moments_under_load(cluster: Cluster) -> None:
    _, chance = seeded()
    sweep(cluster, [chance.uniform(0, 2 * LONGEST / 1000) for _ in range(2000)], at_once=100)


def sweep(cluster: Cluster, moments: Iterable[float], *, at_once: int) -> None:
    """Cancel one run at each of these times (s) after its submit."""
    ends = asyncio.run(_sweep(cluster, moments, at_once))
    print(dict(ends))
    assert ends["cancelled"] > ends["completed"], "the positions are not within the run"


async def _sweep(cluster: Cluster, moments: Iterable[float], at_once: int) -> Counter[str]:
    room, modes = asyncio.Semaphore(at_once), itertools.cycle(MODES)
    limits = httpx.Limits(max_connections=3 * at_once)
    async with httpx.AsyncClient(base_url=cluster.stack.url, timeout=60, trust_env=False, limits=limits) as client:

        async def one(after: float, mode: str) -> str:
            async with room:
                return await _cancel_one(cluster, client, after, mode)

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one(after, mode)) for after, mode in zip(moments, modes, strict=False)]
    return Counter(task.result() for task in running)


async def _cancel_one(cluster: Cluster, client: httpx.AsyncClient, after: float, mode: str) -> str:
    """How the run ended."""
    said = f"cancelled with {mode} after {after:.3f} s: "
    run = (await client.post("/v1/runs", json=cluster.body(MODEL, tools=TOOLS))).json()
    cluster.submitted.append(run["id"])
    approving = asyncio.create_task(_approve(client, run["id"]))
    # Not a wait for anything: the moment is what is tried.
    await asyncio.sleep(after)
    asked = await client.post(f"/v1/runs/{run['id']}/cancel", json={"mode": mode})
    await approving
    run = (await client.get(f"/v1/runs/{run['id']}")).json()
    assert (asked.status_code, run["status"]) in (
        (200, "cancelled"), (202, "cancelled"), (409, "completed"),
    ), f"{said}{asked.status_code}, {run}"  # fmt: skip
    assert run["pending_actions"] == [], said
    again = {"conversation_id": run["conversation_id"], "agent": {"model": "fake/echo"}, "input": "go on"}
    following = (await client.post("/v1/runs", json=again, headers={"Prefer": f"wait={WITHIN}"})).json()
    cluster.submitted.append(following["id"])
    assert (following["status"], following["output"]) == ("completed", "echo: go on"), f"{said}{following}"
    return str(run["status"])


async def _approve(client: httpx.AsyncClient, run_id: str) -> None:
    """Approve what the run asks for until it has ended."""
    allow = {"items": [{"type": "approval", "action_id": "all", "decision": "approve"}]}
    while True:
        run = (await client.get(f"/v1/runs/{run_id}", params={"wait": 20, "until": "action"})).json()
        if run["pending_actions"]:
            # The cancel may be faster.
            taken = await client.post(f"/v1/runs/{run_id}/input", json=allow)
            assert taken.status_code in (200, 202, 409), taken.text
        elif run["status"] in ("completed", "cancelled"):
            return
