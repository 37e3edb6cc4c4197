"""Streams of runs of all shapes, on every wire and by both roads: byte for byte as they were recorded.

`recorded/digests.json` has a digest for each shape, dialect and road; `recorded/*.txt` is one run on each wire, to be
read. With REWRITE_PAGES=1 in the environment they are written anew: what has changed is then to be said by name.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from palaver.events import EventKind
from tests.unit.recorded_streams import WIRES, streams_of
from tests.unit.run_shapes import SEEDS, SHAPES, ShapedRun

_FOLDER: Final = Path(__file__).parent / "recorded"
_DIGESTS: Final = _FOLDER / "digests.json"
_SHOWN: Final = ("approvals", 0)
"""The run that can be read."""


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
async def test_each_wire_has_the_bytes_that_were_recorded(shape: str) -> None:
    digests: dict[str, Any] = defaultdict(hashlib.sha256)
    for seed in range(SEEDS):
        streams = await streams_of(ShapedRun(shape, seed).events, everywhere=seed == 0)
        for wire in WIRES:
            assert streams.pop(f"{wire} apart") == streams[f"{wire} live"], "both roads lead to the same"
        for name, stream in streams.items():
            digests[name].update(stream)
            if (shape, seed) == _SHOWN and " " not in name.replace(" live", ""):
                _compare(_FOLDER / f"{name.removesuffix(' live')}.txt", stream.replace(b"\0", b"# "))
    found = {name: digest.hexdigest()[:16] for name, digest in sorted(digests.items())}
    known = orjson.loads(_DIGESTS.read_bytes()) if _DIGESTS.exists() else {}
    if os.environ.get("REWRITE_PAGES"):
        option = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        _DIGESTS.write_bytes(orjson.dumps({**known, shape: found}, option=option))
        return
    differ = [name for name in found.keys() | known[shape].keys() if found.get(name) != known[shape].get(name)]
    assert sorted(differ) == [], "if it is to be this: REWRITE_PAGES=1"


def _compare(file: Path, stream: bytes) -> None:
    if os.environ.get("REWRITE_PAGES"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(stream)
    assert file.read_bytes() == stream, "if it is to be this: REWRITE_PAGES=1"


def test_the_shapes_have_every_kind_of_event_that_runs_write() -> None:
    kinds = {event.type for shape in SHAPES for seed in range(SEEDS) for event in ShapedRun(shape, seed).events}
    assert set(EventKind) - kinds == {EventKind.CONVERSATION_DELETED}
