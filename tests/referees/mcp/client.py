"""Our client under the conformance suite: ``python -m tests.referees.mcp.client URL``.

It opens the server as a worker does, calls each of its tools once, all at the same time, and answers what they ask. The
suite says in the environment what a tool is to be called with; else it is the smallest thing that fits its schema, or
the schema of another tool where the suite wants that back.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from features.mcp_client.tests.unit.mcp_tools import OpenedTools, opened
from palaver.errors import ToolFailure
from palaver.steps.verdicts import AskPerson
from palaver.tools import ToolContext, ToolDeclaration
from palaver.tools.context import LeftCall
from workers.sources.containment import CallLeft

_SMALLEST: Final[Mapping[str, Any]] = {
    "array": [], "boolean": True, "integer": 1, "number": 1, "object": {}, "string": "a"
}  # fmt: skip

_RICH: Final = "s__json_schema_2020_12_tool"
_ECHO: Final = "s__json_schema_echo"
_SECONDS: Final = 5
"""For each call: some scenarios never answer one that they should not have got."""


def _smallest(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What fits the schema of a form, or of a tool: defaults, and one of each kind."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {
        name: part["default"] if "default" in part else _SMALLEST.get(str(part.get("type")), "a")
        for name, part in properties.items()
    }


async def _called(tools: OpenedTools, declared: ToolDeclaration, arguments: Mapping[str, Any]) -> None:
    left: LeftCall | None = None
    for _ in range(5):
        try:
            result = await tools.box.call(declared.name, dict(arguments), ToolContext(left=left))
        except CallLeft as waits:
            if not isinstance(waits.verdict, AskPerson):
                raise
            form = waits.verdict.question.form or {}
            answer = {"action": "accept", "content": _smallest(form)}
            left = LeftCall(waits.verdict.kept, json.dumps(answer))
        except ToolFailure as failure:
            print(f"{declared.name} failed: {failure}")
            return
        else:
            print(f"{declared.name} answered: {str(result)[:300]}")
            return


async def _main(url: str) -> None:
    wanted = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")).get("toolCalls", [])
    said = {f"s__{each['name']}": each["arguments"] for each in wanted}
    with TemporaryDirectory() as folder:
        async with opened(Path(folder), f'url = "{url}"\ntimeout = {_SECONDS}') as tools:
            declared = tools.box.declarations
            print("tools:", *(each.name for each in declared))
            schemas = {each.name: each.parameters for each in declared}
            if _RICH in schemas:
                said[_ECHO] = {"schema": schemas[_RICH]}
            calls = (_called(tools, each, said.get(each.name, _smallest(each.parameters))) for each in declared)
            await asyncio.gather(*calls)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
