"""Streams of runs of all shapes for kits of AG-UI: byte for byte as they were recorded."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from features.ag_ui.following import stream_of
from features.ag_ui.wire import RunAgentInput
from tests.unit.recorded_streams import Recorder, Replayed, backend, compare, run_of
from tests.unit.run_shapes import SHAPES

_BODY: Final = RunAgentInput.model_validate(
    {"threadId": "thread-1", "runId": "run-1", "messages": [{"id": "u1", "role": "user", "content": "hello"}]}
)
_CALLER: Final[Any] = SimpleNamespace(scopes=None)


async def _stream(source: Replayed, answers: frozenset[str] = frozenset(), *, again: bool = False) -> bytes:
    run = run_of(source.events, source.known)
    return await source.heard(await stream_of(backend(), _CALLER, _BODY, run, answers=answers, again=again))


async def _record(recorder: Recorder) -> None:
    await recorder.record_roads("ag_ui", _stream)
    for place in recorder.places:
        await recorder.record("ag_ui again", Replayed(recorder.events, place), partial(_stream, again=True))
    await recorder.record_answered("ag_ui", _stream)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_wire_has_the_bytes_that_were_recorded(shape: str) -> None:
    await compare(Path(__file__).parent / "recorded", shape, _record, wires=("ag_ui",))
