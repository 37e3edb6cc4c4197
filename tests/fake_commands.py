"""Commands in fakeredis, read in one pass, and with their arguments and answers looked at as far as they need it.

By itself it copies all that was sent behind each part of it, looks twice at the type of each argument, three times at
that of each answer, and after each command of a script for those who listen to keys: half of what such a command takes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from fakeredis import _msgs as msgs
from fakeredis._commands import COMMANDS_WITH_SUB, Key, Signature
from fakeredis._core import CommandItem
from fakeredis._helpers import SimpleError, decode_command_bytes
from fakeredis._socket._base import BaseFakeSocket
from fakeredis._socket._resp import convert_to_resp2
from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin, _convert_redis_arg

_PLANS: Final[dict[tuple[str, int], list[tuple[int, Any]]]] = {}
"""By command and number of its arguments: the places of those that are no plain bytes, and their types."""
_AS_THEY_ARE: Final = (bytes, int)
"""Answers that Lua takes as they are."""
_NO_FIELD: Final = "a client of Redis sent what is no array of strings"


def quicken() -> None:
    """From here on fakeredis reads commands and their arguments so."""
    BaseFakeSocket._parse_commands = _commands  # type: ignore[method-assign]
    Signature.apply = _apply  # type: ignore[method-assign]
    call: Callable[..., Any] = ScriptingCommandsMixin._lua_redis_call

    def quick_call(self: Any, runtime: Any, expected: set[Any], op: bytes, *args: Any) -> Any:
        """A command of a script; as before where it is one of two words, or somebody may listen."""
        name = decode_command_bytes(op)
        server = self._server
        if name in COMMANDS_WITH_SUB or server.subscribers or server.psubscribers:
            return call(self, runtime, expected, op, *args)
        func, signature = self._name_to_func(name)
        assert func is not None, name
        given = [each if type(each) is bytes else _convert_redis_arg(each) for each in args]
        answer = _carry_out(self, func, signature, given)
        return answer if type(answer) in _AS_THEY_ARE else self._convert_redis_result(runtime, answer)

    ScriptingCommandsMixin._lua_redis_call = quick_call  # type: ignore[assignment,method-assign]


def _commands(self: BaseFakeSocket) -> Generator[None, bytes, None]:
    """Carry out each command of what is sent, in whatever pieces."""
    sent, at = b"", 0
    while True:
        while self._paused or (end := sent.find(b"\r\n", at)) < 0:
            sent, at = sent[at:] + (yield), 0
        assert sent[at] == ord("*"), _NO_FIELD
        number, at = int(sent[at + 1 : end]), end + 2
        fields = []
        for _ in range(number):
            while (end := sent.find(b"\r\n", at)) < 0:
                sent, at = sent[at:] + (yield), 0
            assert sent[at] == ord("$"), _NO_FIELD
            length, at = int(sent[at + 1 : end]), end + 2
            while len(sent) < at + length + 2:
                sent, at = sent[at:] + (yield), 0
            fields.append(sent[at : at + length])
            at += length + 2
        self._process_command(fields)


def _carry_out(self: Any, func: Callable[..., Any], signature: Signature, args: list[Any]) -> Any:
    """What a command of a script answers, in RESP2; an error is raised as such."""
    if msgs.FLAG_NO_SCRIPT in signature.flags:
        raise SimpleError(msgs.COMMAND_IN_SCRIPT_MSG)
    taken = signature.apply(args, self._db, self.version)
    if len(taken) == 1:
        return taken[0]
    values, items = taken
    try:
        answer = func(*values)
    finally:
        keep_empty = msgs.FLAG_LEAVE_EMPTY_VAL in signature.flags
        for item in items:
            item.writeback(remove_empty_val=not keep_empty)
        self._subkey_events = []
    if type(answer) in _AS_THEY_ARE or msgs.FLAG_SKIP_CONVERT_TO_RESP2 in signature.flags:
        return answer
    return convert_to_resp2(answer, self.server_type)


def _apply(self: Signature, args: Sequence[Any], db: Any, version: Any) -> Any:
    """Arguments of the types that a command wants, with its keys' items; one value, where a missing key says it all."""
    plan = _PLANS.get((self.name, len(args)))
    if plan is None:
        plan = _plan(self, args, version)
    taken = list(args)
    for place, kind in plan:
        if not isinstance(kind, Key):
            taken[place] = kind.decode(taken[place])
        elif kind.missing_return is not Key.UNSPECIFIED and taken[place] not in db:
            return (kind.missing_return,)
    items = []
    for place, kind in plan:
        if isinstance(kind, Key):
            item, new = db.get(taken[place]), None
            if kind.type_ is not None and kind.type_ is not bytes and item is None:
                new = None if msgs.FLAG_DO_NOT_CREATE in self.flags else kind.type_()
            elif kind.type_ is not None and item is not None and type(item.value) is not kind.type_:
                raise SimpleError(msgs.WRONGTYPE_MSG)
            taken[place] = CommandItem(taken[place], db, item, default=new)
            items.append(taken[place])
    return taken, items


def _plan(command: Signature, args: Sequence[Any], version: Any) -> list[tuple[int, Any]]:
    """Raises SimpleError where so many arguments are too few, or do not go together."""
    command.check_arity(args, version)
    kinds = [*command.fixed]
    kinds += [command.repeat[place % len(command.repeat)] for place in range(len(args) - len(kinds))]
    plan = [(place, kind) for place, kind in enumerate(kinds) if kind is not bytes]
    _PLANS[command.name, len(args)] = plan
    return plan
