"""Event streams as the standard says, and as servers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.incoming.event_stream import Event, EventParser, EventTooLong

LONGEST = 1000


def read(*pieces: bytes) -> list[Event]:
    stream = EventParser(LONGEST)
    return [event for piece in pieces for event in stream.feed(piece)] + list(stream.feed(b"\n\n"))


LINES = st.one_of(
    st.sampled_from(["", "", ": keep-alive", "retry: 2000", "retry: x", "data", "data:", "id", "id: \0", "junk: 1"]),
    st.sampled_from(['data: {"a":', "data: 1}", "data: {}", "{}", "[DONE]", "data: [DONE]", "error: {}"]),
    st.builds(
        lambda name, text: f"{name}: {text}",
        st.sampled_from(["data", "event", "id", "comment"]),
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8),
    ),
)


@given(
    lines=st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"])), max_size=30),
    data=st.data(),
)
def test_any_split_of_the_bytes_gives_the_same_events(lines: list[tuple[str, str]], data: st.DataObject) -> None:
    raw = "".join(text + end for text, end in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert read(*pieces) == read(raw) == read(*(raw[at : at + 1] for at in range(len(raw))))


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data: a\n\n", [(b"a", b"", None)]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"a", b"", None)]),
        (b"id: 3\nevent: x\ndata:{}\r\n\r\n", [(b"{}", b"x", b"3")]),
        (b"data: {}\nevent: x\n\n", [(b"{}", b"x", None)]),
        (b"data: a\ndata:  b\ndata\n\n", [(b"a\n b\n", b"", None)]),
        (b"event: x\n\ndata: a\n\n", [(b"a", b"", None)]),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [(b"a", b"", b"1"), (b"b", b"", None)]),
        (b"data: a\n: x\n:\ndata: b\n\n\n\n", [(b"a\nb", b"", None)]),
        (b": only a comment\n\n", []),
        (b"data: whole", [(b"whole", b"", None)]),
        # As no standard says.
        (b"data: {}\ndata: {}\ndata: [DONE]\n", [(b"{}", b"", None), (b"{}", b"", None), (b"[DONE]", b"", None)]),
        (b"event: a\ndata: {}\nevent: b\ndata: {}\n\n", [(b"{}", b"a", None), (b"{}", b"b", None)]),
        (b'data: {\ndata:  "a": {}\ndata: }\n\n', [(b'{\n "a": {}\n}', b"", None)]),
        (b"{}\n{}\n", [(b"{}", b"", None), (b"{}", b"", None)]),
        (b"error: {}\n\n", [(b"{}", b"error", None)]),
    ],
)
def test_events(raw: bytes, events: list[Event]) -> None:
    assert read(raw) == events


def test_the_newest_id_and_the_wait_before_what_follows_it() -> None:
    stream = EventParser(LONGEST)
    stream.feed(b"retry: 2500\nid: 7\n\nretry: soon\nid: \xc3\xa9\n\n")
    assert (stream.retry, stream.last_id) == (2.5, b"7")
    stream.feed(b"data: half\nda")
    stream.begin()
    assert stream.waiting == 0
    assert stream.feed(b"data: a\n\n") == [(b"a", b"", None)]


@pytest.mark.parametrize("piece", [b"x", b"data: x\n", b"data: x\r"])
def test_what_has_no_end_is_too_long(piece: bytes) -> None:
    stream = EventParser(LONGEST)
    with pytest.raises(EventTooLong):
        any(stream.feed(piece) for _ in range(LONGEST + 1))
    assert stream.waiting <= LONGEST + len(piece)


@pytest.mark.parametrize("piece", [b"\n", b":\n", b"\r\n", b": x\n\n", b"\r", b"event: x\n", b"id: 1\n", b"x\n"])
def test_what_says_nothing_may_go_on_for_ever(piece: bytes) -> None:
    stream = EventParser(LONGEST)
    assert not any(stream.feed(piece * 7) for _ in range(LONGEST))
    assert stream.waiting == 0
    assert [data for data, _, _ in stream.feed(b"\ndata: a\n\n")] == [b"a"]
