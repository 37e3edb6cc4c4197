"""Conversations that clients have with an API that dies: each asks again as its wire says, until it has the answer."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import httpx

from tests.waiting import eventually

Item = tuple[str, ...]
"""`("user", text)`, `("text", text)`, or `("call", name, arguments, result)`."""
PATIENCE = 120.0
"""Seconds in which an answer has to be whole, however often it broke off."""
AGAIN = 0.05
"""Seconds until a client whose connection broke comes back."""


class _LeftError(Exception):
    """The client has dropped its connection."""


class Talker(ABC):
    """One conversation, of one client. `door` is the API that may die; what the client has is its `transcript`."""

    wire: ClassVar[str]
    leaves: ClassVar[bool] = True
    """Whether its wire lets it drop a connection and come back."""

    def __init__(self, door: str, agent: str, name: str, chance: random.Random) -> None:
        self.agent, self.name = agent, name
        self.runs: list[str] = []
        """The run of each turn, as the wire names it."""
        self.broken = self.left = 0
        """Connections that broke, and that it dropped."""
        self.transcript: list[Item] = []
        self._said: list[str] = []
        self._chance = chance
        self._http = httpx.Client(base_url=door, timeout=40.0, trust_env=False)
        self._answer: httpx.Response

    def converse(self, texts: Iterable[str]) -> None:
        """Say one after the other, each once the answer to the one before is whole."""
        with self._http:
            for text in texts:
                self._said.append(text)
                self._begin(text)
                self._wait()
        assert len(self.runs) == len(self._said)

    @property
    def key(self) -> str:
        """The client's own name for the turn."""
        return f"{self.name}-{len(self._said)}"

    def shown(self, log: Sequence[Item]) -> list[Item]:
        """What a client of this wire has of a conversation with that log."""
        return list(log)

    @abstractmethod
    def _begin(self, text: str) -> None:
        """Get ready to say something."""

    @abstractmethod
    def _hear(self) -> bool:
        """Ask, and hear what comes on one connection; whether the answer is whole now.

        Raises:
            httpx.TransportError: the connection broke.
            AssertionError: the wire does not keep what it promises.
        """

    def _wait(self) -> None:
        wrong: list[Exception] = []

        def hear() -> bool:
            try:
                return self._hear()
            except httpx.ConnectError:
                return False
            except httpx.TransportError:
                self.broken += 1
            except _LeftError:
                self.left += 1
            except Exception as error:
                wrong.append(error)
            return bool(wrong)

        eventually(hear, within=PATIENCE, every=AGAIN, why=f"{self.name} has its answer")
        if wrong:
            raise wrong[0]

    def _stream(self, method: str, path: str, **request: Any) -> Iterator[str]:
        """The data of each event of a stream; one that is not cut ends as the server ends it."""
        leaves = self.leaves and self._chance.random() < 0.3
        left = self._chance.randrange(1, 40) if leaves else -1
        with self._http.stream(method, path, **request) as self._answer:
            assert self._answer.status_code in (200, 202, 204), self._answer.read()
            for line in self._answer.iter_lines():
                if line.startswith("data: "):
                    yield line.removeprefix("data: ")
                    left -= 1
                if left == 0:
                    raise _LeftError

    def _post(self, path: str, body: Mapping[str, Any], **headers: str) -> Any:
        answer = self._http.post(path, json=body, headers=headers)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()


class Turn:
    """What was said in a turn so far, call by call."""

    def __init__(self) -> None:
        self._items: list[list[str]] = []
        self._calls: dict[str, list[str]] = {}

    def message(self, message: Mapping[str, Any]) -> None:
        """A message as the native API shows it."""
        text = text_in(message["content"])
        match message["role"]:
            case "tool":
                self.result(message["call_id"], text)
            case "user":
                self._items.append(["user", text])
            case _:
                self.text(text)
                for call in message["tool_calls"]:
                    self.call(call["id"], call["name"], call["arguments"])

    def text(self, text: str) -> None:
        """A text that is whole."""
        if text:
            self._items.append(["text", text])

    def call(self, place: str, name: str, arguments: str) -> None:
        """A call that has no result yet."""
        assert place not in self._calls, f"told twice of the call {place}"
        self._calls[place] = ["call", name, arguments]
        self._items.append(self._calls[place])

    def result(self, place: str, text: str) -> None:
        """The result of a call."""
        assert len(self._calls[place]) == 3, f"told twice of the result of {place}"
        self._calls[place].append(text)

    def whole(self) -> list[Item]:
        """All of it, each call with its result."""
        assert all(len(item) == 4 for item in self._calls.values()), self._items
        return [tuple(item) for item in self._items]


def read_log(http: httpx.Client, run_id: str) -> list[Item]:
    """What the log of the run's conversation has, as the native API shows it."""
    conversation = http.get(f"/v1/runs/{run_id}").json()["conversation_id"]
    answer = http.get(f"/v1/conversations/{conversation}/messages", params={"limit": 200})
    page = answer.json()
    assert answer.status_code == 200, page
    assert not page["has_more"], "more than a page"
    return transcript_of(page["data"])


def transcript_of(messages: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Messages in the form of a transcript."""
    turn = Turn()
    for message in messages:
        turn.message(message)
    return turn.whole()


def text_in(content: str | Sequence[Mapping[str, Any]]) -> str:
    """The text of a message."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
