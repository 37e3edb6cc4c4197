"""How long after the model's last byte OpenHands' own client comes back from `run()`."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bench.asked import BenchError, Call
from bench.openhands.conversations import PROMPT
from bench.openhands.install import ENVIRONMENT
from bench.openhands.rows import Row, both
from bench.openhands.sides import Side, surroundings
from bench.rig import Rig
from features.stack.child import dying_with_parent

_PROGRAM: Final = Path(__file__).resolve().parent / "client.py"
_MODEL: Final = "echo+ttft-300"
_WITHIN: Final = 120.0


async def measure(rig: Rig, sides: Sequence[Side], *, runs: int) -> list[Row]:
    """So many runs on each side, one after the other.

    Raises:
        BenchError: the client fails.
    """
    late: dict[str, list[float]] = {side.name: [] for side in sides}
    whole: dict[str, list[float]] = {side.name: [] for side in sides}
    async with _client(rig) as client:
        for number in range(runs + 1):
            for side in sides:
                rig.asked.forget()
                told = await _ask(client, rig, side)
                calls = await rig.asked.until(_ended, within=_WITHIN, what="the call of the model has ended")
                ended_at = calls[-1].ended_at or 0.0
                # The first one of each is what imports and connections cost.
                if number:
                    late[side.name].append(1e3 * (told["returned"] - ended_at))
                    whole[side.name].append(1e3 * (told["returned"] - told["called"] - 0.3))
    ours, theirs = (side.name for side in sides)
    return [
        both("from the model's last byte to `run()` returning, ms", late[ours], late[theirs]),
        both("`run()` in all, but for the 300 ms of the model, ms", whole[ours], whole[theirs]),
    ]


def _ended(calls: Sequence[Call]) -> bool:
    return bool(calls) and all(call.ended_at for call in calls)


@asynccontextmanager
async def _client(rig: Rig) -> AsyncIterator[Process]:
    command = dying_with_parent((str(ENVIRONMENT.python), "-P", str(_PROGRAM)))
    with (rig.folder / "client.log").open("wb") as log:
        client = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=log, env=surroundings(rig.folder)
        )
    try:
        await _line(client, rig)
        yield client
    finally:
        client.kill()
        await client.wait()


async def _ask(client: Process, rig: Rig, side: Side) -> Any:
    asked = {
        "host": side.url,
        "model": f"openai/{_MODEL}",
        "base_url": rig.model_url,
        "prompt": PROMPT,
        "working_dir": str(rig.folder),
    }
    assert client.stdin is not None
    client.stdin.write(json.dumps(asked).encode() + b"\n")
    return await _line(client, rig)


async def _line(client: Process, rig: Rig) -> Any:
    assert client.stdout is not None
    try:
        line = await asyncio.wait_for(client.stdout.readline(), _WITHIN)
    except TimeoutError:
        raise BenchError(f"OpenHands' client has not come back from `run()` in {_WITHIN:g} s") from None
    if not line:
        raise BenchError(f"OpenHands' client failed: {(rig.folder / 'client.log').read_text()[-1500:]}")
    return json.loads(line)
