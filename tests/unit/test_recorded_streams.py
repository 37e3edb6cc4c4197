"""Streams of runs of all shapes, as the native dialect and a shell show them: byte for byte as they were recorded."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

from api.kit.streams import Outlet
from api.native.frames import frame
from palaver.cli.transcript import Transcript
from palaver.events import EventKind, read_event
from tests.unit.recorded_streams import Recorder, Replayed, Socket, compare
from tests.unit.run_shapes import RUN, SEEDS, SHAPES, ShapedRun

_CLOCK: Final = re.compile(r"\d\d:\d\d:\d\d")


async def _native(source: Replayed) -> bytes:
    outlet, heard = Outlet(frame), Socket()
    outlet.connection = heard  # type: ignore[assignment]
    async for events in source.follow(None, RUN, include="reasoning", pass_on=outlet.pass_on):
        heard.heard += map(frame, events)
    return b"".join(heard.heard)


async def _transcript(source: Replayed) -> bytes:
    written = io.StringIO()
    told = Transcript(Console(file=written, width=200, no_color=True), show_input=True)
    for event in source.events:
        told.show(read_event(event.to_json()))
        written.write(f"\x00{told.doing}\n")
    return _CLOCK.sub("00:00:00", written.getvalue()).encode()


async def _record(recorder: Recorder) -> None:
    await recorder.record_roads("native", _native)
    await recorder.record("transcript", recorder.roads["replay"], _transcript)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_wire_has_the_bytes_that_were_recorded(shape: str) -> None:
    await compare(Path(__file__).parent / "recorded", shape, _record, wires=("native",))


def test_the_shapes_have_every_kind_of_event_that_runs_write() -> None:
    kinds = {event.type for shape in SHAPES for seed in range(SEEDS) for event in ShapedRun(shape, seed).events}
    assert set(EventKind) - kinds == {EventKind.CONVERSATION_DELETED}
