"""Sources with many tools, each of which does the deed: as modules, and as files of PALAVER_TOOL_SOURCES."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Any, Final

from palaver import Tool, tool
from tests.process import deed_stdio
from tests.process.deed_tools import BaseTool, python_deed
from tests.process.deeds import MANY, SCHEMA

NAMES: Final = tuple(f"deed_{number}" for number in range(MANY))
_TABLE: Final = """
[{tables}.{name}]
{more}
parameters.properties = {{ do = {{ type = "string" }}, key = {{ type = "string" }} }}
"""

_FUNCTIONS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {
        "python": lambda name: tool(name=name)(python_deed),
        "declared": lambda name: Tool(name, "Do something.", SCHEMA, python_deed),
        "foreign": BaseTool,
    }
)


def module_of_many(source: str) -> ModuleType | None:
    """A module with so many, if the source has modules."""
    if source not in _FUNCTIONS:
        return None
    module = ModuleType(f"many_{source}")
    vars(module).update({name: _FUNCTIONS[source](name) for name in NAMES})
    return module


def file_of_many(source: str, port: int) -> str:
    """A file that declares so many, if the source has a table."""
    stdio = json.dumps([sys.executable, "-S", deed_stdio.__file__, str(MANY)])
    match source:
        case "celery":
            return '[celery.deeds]\nbroker_env = "SHOP_BROKER"\n' + _tables("celery.deeds.tasks", 'task = "deed"')
        case "http":
            base = f'[http.deeds]\nbase_url = "http://127.0.0.1:{port}"\n'
            return base + _tables("http.deeds.tools", 'method = "POST"\npath = "/deeds"')
        case "mcp-http":
            return f'[mcp.many]\nurl = "http://127.0.0.1:{port}/many"\n'
        case "mcp-stdio":
            return f'[mcp.many]\ncommand = {stdio}\nenv = ["DEEDS"]\n'
    return ""


def _tables(tables: str, more: str) -> str:
    return "".join(map(partial(_table, tables, more), NAMES))


def _table(tables: str, more: str, name: str) -> str:
    return _TABLE.format(tables=tables, name=name, more=more)
