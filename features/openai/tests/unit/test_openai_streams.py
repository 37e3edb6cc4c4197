"""Streams of runs of all shapes for clients of OpenAI's API: byte for byte as they were recorded."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from features.openai.chat_stream import ChatStream
from features.openai.ids import ResponseId
from features.openai.streaming import ResponseEvents
from features.openai.wire import ChatCreate
from palaver.errors import Refused
from palaver.events import EventKind
from tests.unit.recorded_streams import Recorder, Replayed, backend, compare, places_of, run_of
from tests.unit.run_shapes import RUN, SHAPES

_CHAT: Final = ChatCreate.model_validate(
    {"model": "fake/echo", "messages": [{"role": "user", "content": "hello"}], "stream": True}
)
_CALLER: Final[Any] = SimpleNamespace(scopes=None)


async def _response(source: Replayed, part: int, behind: int | None = None) -> bytes:
    response = ResponseEvents(backend(), ResponseId(RUN, part), run_of(source.events, source.known))
    if behind is not None:
        try:
            await response.go_behind(behind)
        except Refused as refused:
            return f"{refused.code} {refused}\n".encode()
    return await source.heard(response)


async def _chat(source: Replayed) -> bytes:
    run = run_of(source.events, source.known)
    return await source.heard(ChatStream(backend(), _CALLER, run, _CHAT, keeps=True, headers={}))


async def _record(recorder: Recorder) -> None:
    events = recorder.events
    await recorder.record_roads("chat", _chat)
    for part in range(1 + len(places_of(events, (EventKind.RUN_REQUIRES_ACTION,)))):
        await recorder.record_roads("responses", partial(_response, part=part))
    for place in recorder.places:
        await recorder.record("chat again", Replayed(events, place), _chat)
        for behind in (place * 1000, place * 1000 + 3):
            again = partial(_response, part=0, behind=behind)
            await recorder.record("responses again", Replayed(events, len(events)), again)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_wire_has_the_bytes_that_were_recorded(shape: str) -> None:
    await compare(Path(__file__).parent / "recorded", shape, _record, wires=("responses", "chat"))
