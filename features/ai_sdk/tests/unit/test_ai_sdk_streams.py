"""Streams of runs of all shapes for pages of the AI SDK: byte for byte as they were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.ai_sdk.following import stream_of
from tests.unit.recorded_streams import Recorder, Replayed, backend, compare, run_of
from tests.unit.run_shapes import SHAPES


async def _stream(source: Replayed, answers: frozenset[str] = frozenset()) -> bytes:
    return await source.heard(stream_of(backend(), run_of(source.events, source.known), answers))


async def _record(recorder: Recorder) -> None:
    await recorder.record_roads("ai_sdk", _stream)
    for place in recorder.places:
        await recorder.record("ai_sdk again", Replayed(recorder.events, place), _stream)
    await recorder.record_answered("ai_sdk", _stream)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_wire_has_the_bytes_that_were_recorded(shape: str) -> None:
    await compare(Path(__file__).parent / "recorded", shape, _record, wires=("ai_sdk",))
