"""How many refunds are paid twice when the process that pays dies between the payment and its note of it, and the work
is resumed: each of them is interrupted so, once.

The other side is the pattern that a public report is about (microsoft/agent-framework#3938: 209 of 209 refunds were
doubled, and none with a key that the bank goes by), as `bench/superstep.py` rebuilds it, and the framework itself where
`python -m bench.peers.install agent-framework` has installed it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.asked import BenchError
from bench.bank import paid
from bench.peers.install import AGENT_FRAMEWORK
from bench.report import Table
from bench.rig import Rig
from palaver.schemas.models import Run

_AT_ONCE: Final = 8
_TRIES: Final = 4
_IN_DOUBT: Final = "may or may not have taken effect"
_NOTE: Final = (
    "Each process that pays is killed (SIGKILL) right behind the payment, once for each order, before anybody can have "
    "noted it; then the work is resumed. Paid is what the bank has. Where Palaver does not pay again, the model reads "
    "that the refund may or may not have taken effect. With a key the bank pays once for each; Palaver makes the key "
    "of the call, elsewhere it is the number of the order. An approval is asked for once."
)


async def measure(refunds: int) -> list[Table]:
    """Interrupt so many refunds in each way. Raises BenchError if one does not end."""
    columns = ("", "refunds", "paid twice", "not paid", "answered", "said to be in doubt", "approvals")
    table = Table("Refunds that are interrupted between the payment and its checkpoint", columns, note=_NOTE)
    for name, tool in (
        ("Palaver, a tool that is not idempotent", "refund"),
        ("Palaver, an idempotent tool, and a bank that goes by its key", "refund_by_key"),
        ("Palaver, a tool with an approval", "refund_approved"),
    ):
        table.rows.append((name, *await _ours(tool, refunds)))
    for name, command in _others().items():
        for way, keyed in (("", False), (", and a bank that goes by a key", True)):
            table.rows.append((name + way, *await _theirs(command, refunds, keyed=keyed)))
    return [table]


def _others() -> Mapping[str, Sequence[str]]:
    """Their programs: each takes a folder for its checkpoints, an order, and a key or none."""
    found = {"a checkpoint after each superstep (rebuilt)": (sys.executable, "-S", "-m", "bench.superstep")}
    try:
        python = AGENT_FRAMEWORK.program()
    except BenchError as error:
        print(f"bench: agent-framework is left out: {error}", file=sys.stderr)
        return found
    version = AGENT_FRAMEWORK.version("agent-framework-core")
    return {**found, f"agent-framework-core {version}": (python, "-m", "bench.peers.apps.agent_framework_app")}


async def _ours(tool: str, refunds: int) -> tuple[str, ...]:
    async with Rig() as rig:
        bank = _bank(rig.folder)
        environment = {"PALAVER_TOOLS": "bench.refund_tools", "BENCH_BANK": str(bank)}
        await rig.workers_ready(rig.start_worker(50, environment), rig.start_tools(environment))
        orders = [f"order-{number}" for number in range(refunds)]
        runs = [await _submit(rig, tool, order) for order in orders]
        approvals = sum([await rig.approve(run) for run in runs]) if tool == "refund_approved" else 0
        ended = await rig.ended(runs)
        told = Counter([_told(run, order) for run, order in zip(ended, orders, strict=True)])
        return _row(orders, bank, told["answered"], told["in doubt"], approvals)


async def _submit(rig: Rig, tool: str, order: str) -> str:
    return await rig.submit("tool-1", tools=(tool,), input=f"[[args {json.dumps({'order': order})}]]")


def _told(run: Run, order: str) -> str:
    said = run.output or ""
    if run.status == "completed" and f"{order} is paid back" in said:
        return "answered"
    if run.status == "completed" and _IN_DOUBT in said:
        return "in doubt"
    raise BenchError(f"{run.id} is {run.status}: {said[:300]}")


async def _theirs(command: Sequence[str], refunds: int, *, keyed: bool) -> tuple[str, ...]:
    async with Rig() as rig:
        bank = _bank(rig.folder)
        orders = [f"order-{number}" for number in range(refunds)]
        room = asyncio.Semaphore(_AT_ONCE)

        async def resumed(order: str) -> None:
            checkpoint = rig.folder / f"checkpoint-{order}"
            words = (*command, str(checkpoint), order, *([order] if keyed else []))
            async with room:
                await _until_done(words, bank)

        await asyncio.gather(*map(resumed, orders))
        return _row(orders, bank, len(orders), 0, 0)


async def _until_done(words: Sequence[str], bank: Path) -> None:
    environment = {"BENCH_BANK": str(bank), "PATH": "/usr/bin:/bin", "HOME": str(bank)}
    for _ in range(_TRIES):
        process = await asyncio.create_subprocess_exec(*words, env=environment, stderr=asyncio.subprocess.PIPE)
        _, said = await process.communicate()
        if process.returncode == 0:
            return
        if process.returncode != -9:
            raise BenchError(f"{words}: {said.decode()[-1000:]}")
    raise BenchError(f"{words}: it is killed each time")


def _bank(folder: Path) -> Path:
    bank = folder / "bank"
    bank.mkdir()
    return bank


def _row(orders: Sequence[str], bank: Path, answered: int, in_doubt: int, approvals: int) -> tuple[str, ...]:
    found = paid(bank)
    twice, never = sum(found[order] > 1 for order in orders), sum(not found[order] for order in orders)
    return tuple(str(value) for value in (len(orders), twice, never, answered, in_doubt, approvals))
