"""``palaver tenants create NAME`` and ``palaver tenants list``: the tenants of an installation.

A program of its own, for where Redis can be reached: no API has to be up, and no key is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence

from palaver.config.exits import EX_UNAVAILABLE, EX_USAGE, refuse, refusing
from palaver.config.settings import Settings, settings
from palaver.errors import ErrorClass, Refused, StateConflict, classify
from palaver.store import Store
from palaver.store.tenants.tenants import Tenant


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    chosen = _parser().parse_args(arguments)
    with refusing():
        here = settings()
    try:
        tenants = asyncio.run(_create(here, chosen.name) if chosen.command == "create" else _list(here))
    except Refused as refused:
        refuse(f"palaver tenants: {refused.detail}", EX_USAGE)
    except StateConflict as conflict:
        refuse(f"palaver tenants: {conflict}", EX_USAGE)
    except Exception as error:
        if classify(error).error_class is not ErrorClass.STORAGE:
            raise
        refuse(f"palaver tenants: Redis does not answer: {error}", EX_UNAVAILABLE)
    for tenant in tenants:
        shown = json.dumps(tenant._asdict()) if chosen.json else f"{tenant.name}  {tenant.tag or '-'}"
        print(shown)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="palaver tenants", description="The tenants of this installation.")
    commands = parser.add_subparsers(dest="command", title="commands", required=True)
    create = commands.add_parser(
        "create", help="make a tenant", description="Make a tenant, and print its name and its tag."
    )
    create.add_argument("name", metavar="NAME", help="1 to 63 of a-z, 0-9 and -")
    listing = commands.add_parser("list", help="list them", description="List tenants: their names and their tags.")
    for command in (create, listing):
        command.add_argument("--json", action="store_true", help="print JSON, a line for each")
    return parser


async def _create(here: Settings, name: str) -> Sequence[Tenant]:
    async with Store.connect(here) as store:
        return [await store.tenants.create(name)]


async def _list(here: Settings) -> Sequence[Tenant]:
    async with Store.connect(here) as store:
        return await store.tenants.list()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
