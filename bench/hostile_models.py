"""`python -m bench.hostile_models --port N --protocol NAME --shapes N [--whole]`: answers that are costly to read.

The answers are those of `tests/cost/hostile_answers.py`, as large as is taken in. The model `s7` gives the one with the
number 7, of so many that are spread over all of them; they are made before the first question.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from bench.questions import Questions
from features.stack.ports import HOST
from tests.cost.hostile_answers import shapes


class Shape(NamedTuple):
    """An answer, by what is in it."""

    name: str
    data: bytes


def chosen(protocol: str, *, streamed: bool, count: int) -> list[Shape]:
    """So many shapes, or all if there are no more, evenly spread over all."""
    every = [Shape(*each) for each in shapes(protocol, streamed=streamed)]
    count = min(count, len(every))
    return [every[number * len(every) // count] for number in range(count)]


class _Answers(Questions):
    """A connection, on which each question gets the answer that its model names."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = answers

    def answer(self, head: bytes, model: str) -> None:
        """Write the answer of the number in the model's name."""
        self._transport.write(self._answers[int(model.removeprefix("s"))])


async def _serve(port: int, answers: Sequence[bytes]) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Answers(answers), HOST, port)
    await server.serve_forever()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m bench.hostile_models")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--protocol", required=True)
    parser.add_argument("--shapes", type=int, required=True)
    parser.add_argument("--whole", action="store_true", help="not streamed")
    given = parser.parse_args()
    kind = b"application/json" if given.whole else b"text/event-stream"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    found = chosen(given.protocol, streamed=not given.whole, count=given.shapes)
    asyncio.run(_serve(given.port, [head % (kind, len(each.data)) + each.data for each in found]))


if __name__ == "__main__":
    main()
