"""Scripts in fakeredis: what Redis knows of them and it does not, and one Lua for all its servers.

By itself it has a Lua for each server, compiles a script at each call of it, and looks before each command of a script
at all globals: a third of what the tests on fakeredis would compute.
"""

from __future__ import annotations

import threading
from functools import wraps
from typing import Any, Final

from fakeredis import FakeServer
from fakeredis.commands_mixins import scripting_mixin
from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin

_FIRST: Final = b"#!lua "
"""Redis knows this first line of every script, fakeredis only of functions."""
_COLLECTED: Final = "collectgarbage()"
"""What fakeredis has run behind each script. It takes longer the more is compiled, and Lua does it unasked."""


class _Lua:
    """A Lua that compiles each script once."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[bytes | str, Any] = {_COLLECTED: lambda: None}

    def execute(self, script: bytes | str) -> Any:
        """Run a script."""
        if script not in self._compiled:
            # Whatever the flags in that line are: fakeredis never has too little memory.
            text = b"--" + script if isinstance(script, bytes) and script.startswith(_FIRST) else script
            self._compiled[script] = self._runtime.compile(text)
        return self._compiled[script]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


def teach() -> None:
    """From here on fakeredis runs scripts so, in each thread in a Lua of its own.

    A script that sets a global is refused at its end.
    """
    mine = threading.local()
    runtime_of, look_at_globals = ScriptingCommandsMixin._get_server_runtime, scripting_mixin._check_for_lua_globals

    @wraps(runtime_of)
    def shared(self: Any, server: Any) -> _Lua:
        if not hasattr(mine, "lua"):
            whole = FakeServer()
            mine.lua = _Lua(runtime_of(self, whole))
            mine.parts = {name: value for name, value in vars(whole).items() if name.startswith("_lua_")}
        vars(server).update(mine.parts)
        lua: _Lua = mine.lua
        return lua

    @wraps(look_at_globals)
    def at_the_end(lua: Any, expected: set[Any]) -> None:
        if isinstance(lua, _Lua):
            look_at_globals(lua, expected)

    ScriptingCommandsMixin._get_server_runtime = shared  # type: ignore[method-assign]
    scripting_mixin._check_for_lua_globals = at_the_end
