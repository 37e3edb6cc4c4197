"""Messages of a tools worker's children to their parent, each child over a pipe that its tools can write to as well.

A library that writes to the wrong descriptor puts its bytes between two messages. From there on it is unknown where the
next one begins: Celery would read them as one message of gigabytes, for ever, and never hear of that child again. So a
message has a largest size, has to come in one go, and has to be a message. A child that sends anything else is
*garbled*: nothing more is read from it, and it is replaced.

It leans on `_recv_message` and `_flush_outqueue` of Celery 5.7's `ResultHandler`, held by
tests/process/test_hostile_tools.py.
"""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable, Generator
from typing import Any, Final

from celery.concurrency.asynpool import ResultHandler

from palaver.vocabulary.limits import MIB

_MOST: Final = 16 * MIB
"""Bytes of a message: ids, and the traceback of an unforeseen error."""
_HEADER: Final = 4
_LOOKS: Final = 20
"""Looks during which nothing of a message comes that has begun to. A child writes it at once."""
_LATER: Final = (errno.EAGAIN, errno.EINTR)


class Answers(ResultHandler):  # type: ignore[misc]  # Celery is untyped
    """Celery's own, which survives what it reads."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._begun: dict[int, int] = {}
        """Descriptors of messages that have begun to come, and since how many looks nothing of them came."""

    def look(self) -> None:
        """Called again and again: what does not go on is no message."""
        for fd in tuple(self._begun):
            self._begun[fd] += 1
            if self._begun[fd] > _LOOKS:
                self._is_garbled(fd)

    def _recv_message(
        self, add_reader: Callable[..., object], fd: int, callback: Callable[[Any], object], **_: Any
    ) -> Generator[None]:
        try:
            size = int.from_bytes((yield from self._read(fd, _HEADER)), "big", signed=True)
            if not 0 < size <= _MOST:
                raise ValueError("no size of a message")
            message = pickle.loads((yield from self._read(fd, size)))
            if not isinstance(message, tuple) or len(message) != 2 or message[0] not in self.state_handlers:
                raise ValueError("no message")
        except EOFError:
            # The child is gone, which its parent sees elsewhere.
            self._forget(fd)
            return
        except Exception:
            self._is_garbled(fd)
            return
        self._begun.pop(fd, None)
        add_reader(fd, self.handle_event, fd)
        callback(message)

    def _read(self, fd: int, most: int) -> Generator[None, None, bytes]:
        data = b""
        while len(data) < most:
            try:
                part = os.read(fd, most - len(data))
            except OSError as error:
                if error.errno not in _LATER:
                    raise EOFError from error
                self._begun.setdefault(fd, 0)
                yield
                continue
            if not part:
                raise EOFError
            data += part
            self._begun[fd] = 0
        return data

    def _is_garbled(self, fd: int) -> None:
        self._forget(fd)
        if (child := self.fileno_to_outq.get(fd)) is not None:
            child.garbled = True

    def _forget(self, fd: int) -> None:
        self._begun.pop(fd, None)
        self._hub.remove_reader(fd)

    def _flush_outqueue(self, fd: int, remove: Callable[[int], Any], children: Any, *others: Any) -> Any:
        """At shutdown, read the messages that are left. From a garbled child there is nothing to wait for."""
        if garbled(children.get(fd)):
            return remove(fd)
        return super()._flush_outqueue(fd, remove, children, *others)


def garbled(child: Any) -> bool:
    """Tell whether a child sent something that is no message."""
    return getattr(child, "garbled", False)
