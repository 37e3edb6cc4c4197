"""Events of runs of all shapes for clients of OpenHands: byte for byte as they were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from features.openhands.events import Writer
from features.openhands.state import Generation
from palaver.events import DELTAS
from tests.unit.recorded_streams import Recorder, Replayed, compare, log_of
from tests.unit.run_shapes import PICK, SHAPES


async def _shown(source: Replayed) -> bytes:
    shown: list[dict[str, Any]] = []
    for generation in Generation:
        writer = Writer(UUID(int=1), generation, {PICK.name: PICK})
        for event in source.events:
            if event.type in DELTAS:
                # Its id is another one each time.
                shown.append({**writer.delta(event), "id": ""})
            shown += [each for entry in log_of([event]) for each in writer.of(entry)]
    return b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in shown)


async def _record(recorder: Recorder) -> None:
    await recorder.record("openhands", recorder.roads["replay"], _shown)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_wire_has_the_bytes_that_were_recorded(shape: str) -> None:
    await compare(Path(__file__).parent / "recorded", shape, _record, wires=())
