"""OpenHands' client in a process of its own, told what to do and asked what it saw."""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from tests.openhands.install import HERE, interpreter

PATIENCE: Final = 600.0
"""Seconds for what a client does at once on a machine that is not busy; it imports for minutes on one that is."""


class ClientError(Exception):
    """What the client raised."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['raised']}: {answer['why']}")
        self.kind: str = answer["raised"]
        self.error: dict[str, Any] | None = answer["error"]
        """The ConversationErrorEvent that came with it."""


class Begun:
    """Something that the client was told to do."""

    def __init__(self) -> None:
        self._answer: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def answered(self, answer: dict[str, Any]) -> None:
        self._answer.put(answer)

    @property
    def over(self) -> bool:
        """Whether there is an answer."""
        return not self._answer.empty()

    def result(self, patience: float = PATIENCE) -> Any:
        """What came of it.

        Raises:
            ClientError: the client raised something.
            TimeoutError: it is still at it.
        """
        try:
            answer = self._answer.get(timeout=patience)
        except queue.Empty:
            raise TimeoutError(f"the client is at it for more than {patience:g} s") from None
        if "raised" in answer:
            raise ClientError(answer)
        return answer["seen"]


class OpenHandsClient:
    """One process, for any number of conversations."""

    def __init__(self, generation: str, log: Path) -> None:
        self.generation = generation
        python = interpreter(generation)
        assert python is not None
        self._log: IO[bytes] = log.open("wb")
        # Its own proxies and keys are no business of the client.
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        self._process = subprocess.Popen(
            [python, HERE / "driver.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**environment, "NO_PROXY": "*"},
            text=True,
        )
        self._numbers = itertools.count(1)
        self._names = itertools.count(1)
        self._begun: dict[int, Begun] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            assert pipe is not None
            pipe.close()

    def begin(self, do: str, of: str, **how: Any) -> Begun:
        """Tell it to do something."""
        number, begun = next(self._numbers), Begun()
        self._begun[number] = begun
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "do": do, "of": of, **how}) + "\n")
        self._process.stdin.flush()
        return begun

    def open(self, **how: Any) -> RemoteConversation:
        """A conversation, new or attached to."""
        name = f"c{next(self._names)}"
        return RemoteConversation(self, name, self.begin("open", name, **how).result())

    def connect(self, **how: Any) -> RemoteConversation:
        """One that is created as a ``request`` says, or the one of a ``conversation_id``, by the client's own class."""
        name = f"c{next(self._names)}"
        return RemoteConversation(self, name, self.begin("connect", name, **how).result())

    def hasten(self, times: float) -> None:
        """Let the clock by which it waits go so many times as fast."""
        self.begin("hasten", "", times=times).result()

    def refuses(self, events: list[dict[str, Any]]) -> Any:
        """The first of these events that this client does not take, and why; None if it takes them all."""
        return self.begin("parse", "", each=events).result()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._begun.pop(answer["id"]).answered(answer)


class RemoteConversation:
    """A conversation as the client has it."""

    def __init__(self, client: OpenHandsClient, name: str, id: str) -> None:
        self._client = client
        self._name = name
        self.id = id

    def begin(self, method: str, *arguments: Any, **named: Any) -> Begun:
        """Call a method, and do not wait for it."""
        return self._client.begin("call", self._name, method=method, arguments=arguments, **named)

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method."""
        return self.begin(method, *arguments, **named).result()

    def run(self, **named: Any) -> None:
        """Run, until it is over."""
        self.call("run", poll_interval=0.5, timeout=PATIENCE, **named)

    def fork(self, **named: Any) -> RemoteConversation:
        """Another one that begins with what this one has."""
        return RemoteConversation(self._client, f"{self._name}-fork", self.call("fork", **named))

    def do(self, word: str, **how: Any) -> Any:
        """One of the other words of the driver: confirm, events, heard, state, close."""
        return self._client.begin(word, self._name, **how).result()

    def leave(self) -> None:
        """Close it, and do not wait: a client looks for 5 s whether its socket is told something more."""
        self._client.begin("close", self._name)

    @property
    def status(self) -> str:
        """Its execution status, as the client knows it."""
        return str(self.do("state")["status"])
