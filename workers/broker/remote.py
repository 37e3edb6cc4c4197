"""Remote control of workers: what Flower shows, and nothing that changes what a worker does.

Celery's own commands end workers, shrink pools, stop consumers, limit rates and forget tasks, for every client that may
publish on one channel. Palaver has its own cancel, and a deployment its own way to stop a process. An answer goes to
the queue for answers only: a client could name any other, and have a worker write where the client may not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson
from celery.app import control
from kombu import pidbox

from palaver.vocabulary.limits import limit_of

from .reading import dropped

COMMANDS: Final[Mapping[str, Mapping[str, tuple[object, ...]]]] = {
    "active": {"safe": (None, False, True)},
    "active_queues": {},
    "conf": {"with_defaults": (None, False, True)},
    "enable_events": {},
    # A listener to events asks for one of each worker as it begins, and each time it has connected again.
    "heartbeat": {},
    "ping": {},
    "registered": {"taskinfoitems": (None, [])},
    "reserved": {},
    "revoked": {},
    "scheduled": {},
    "stats": {},
}
"""The commands that a worker answers, with the arguments that each may have: those that Flower sends."""
_UUID: Final = re.compile(r"[0-9a-f-]{1,64}")
_LATEST: Final = 2**53
_FIELDS: Final = {"method", "arguments", "destination", "pattern", "matcher", "ticket", "reply_to"}


class Node(pidbox.Node):
    """A worker's end of remote control. A command that is not in `COMMANDS`, or not well formed, is dropped."""

    def __init__(self, hostname: Any, state: Any, channel: Any, handlers: Mapping[str, Any], mailbox: Any) -> None:
        """Keep those of the `handlers` that are commands here."""
        allowed = {name: handler for name, handler in handlers.items() if name in COMMANDS}
        super().__init__(hostname, state, channel, allowed, mailbox)  # type: ignore[no-untyped-call]
        self._replies = str(mailbox.reply_exchange.name)

    def listen(self, channel: Any = None, callback: Callable[[Any, Any], object] | None = None) -> Any:
        """Consume commands, each looked at before it is decoded for Celery."""
        taken = partial(self._take, callback or self.handle_message)
        consumer = self.Consumer(channel=channel, on_message=taken)  # type: ignore[no-untyped-call]
        consumer.consume()
        return consumer

    def _take(self, callback: Callable[[Any, Any], object], message: Any) -> None:
        command = command_in(message.headers, message.body, self._replies)
        if command is None:
            dropped("remote_commands", "remote control")
        elif not command["destination"] or self.hostname in command["destination"]:
            callback(command, message)


def command_in(headers: Any, body: Any, replies: str) -> dict[str, Any] | None:
    """The command that a message is, to be answered on the exchange `replies`; None when workers know no such one."""
    try:
        if len(body) > limit_of("control_message") or not 0 <= headers.get("clock", 0) < _LATEST:
            return None
        command = orjson.loads(body)
        allowed = COMMANDS[command["method"]]
        arguments, destination = command.get("arguments") or {}, command.get("destination") or []
        reply_to, ticket = command.get("reply_to"), command.get("ticket")
        known = (
            # A pattern is a regular expression, and may take for ever.
            not command.get("pattern")
            and not command.keys() - _FIELDS
            and all(value in allowed[name] for name, value in arguments.items())
            and isinstance(destination, list)
            and all(isinstance(node, str) for node in destination)
            and (not reply_to or (reply_to["exchange"] == replies and bool(_UUID.fullmatch(reply_to["routing_key"]))))
            and (ticket is None or bool(_UUID.fullmatch(ticket)))
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return {**command, "arguments": arguments, "destination": destination} if known else None


class Mailbox(pidbox.Mailbox):
    """Makes nodes of that kind."""

    node_cls = Node  # type: ignore[assignment]


class Control(control.Control):  # type: ignore[misc]  # Celery is untyped
    """An app's remote control."""

    Mailbox = Mailbox
