"""The first line of a script, `#!lua …`, for fakeredis: Redis knows it of every script, fakeredis only of functions."""

from __future__ import annotations

import hashlib
from functools import wraps
from typing import Any, Final

from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin

_FIRST: Final = b"#!lua "


def teach() -> None:
    """From here on fakeredis runs such scripts, whatever their flags are: it never has too little memory."""
    plain = ScriptingCommandsMixin.eval

    @wraps(plain)
    def evaluate(self: Any, script: bytes, numkeys: int, *keys_and_args: bytes) -> Any:
        if not script.startswith(_FIRST):
            return plain(self, script, numkeys, *keys_and_args)
        self._server.script_cache[hashlib.sha1(script, usedforsecurity=False).hexdigest().encode()] = script
        return plain(self, b"--" + script, numkeys, *keys_and_args)

    ScriptingCommandsMixin.eval = evaluate  # type: ignore[method-assign]  # it has no such line itself
