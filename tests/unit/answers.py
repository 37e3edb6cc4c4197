"""Answers of a provider in pieces, as streams bring them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from workers.protocols import AnswerReader, ModelReply


def streamed(answer: AnswerReader, *pieces: bytes) -> tuple[ModelReply, str, str]:
    """What a reader makes of a stream: the reply, and the text and the thoughts that were shown."""
    shown = [answer.feed(piece) for piece in pieces]
    said, thoughts = ("".join(each) for each in zip(*shown, strict=True))
    return answer.reply(), said, thoughts


def split(stream: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The stream, cut at these places, whatever its length."""
    places = [0, *sorted(cut % len(stream) for cut in cuts), len(stream)]
    return (stream[a:b] for a, b in pairwise(places))
