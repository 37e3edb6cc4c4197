"""``palaver tenants``: the tenants of an installation, their caps, and how they leave.

A program of its own, for where Redis can be reached: no API has to be up, and no key is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from palaver.config.exits import EX_UNAVAILABLE, EX_USAGE, refuse, refusing, run_program
from palaver.config.settings import Settings, settings
from palaver.errors import ErrorClass, Refused, StateConflict, classify
from palaver.feature import brought
from palaver.schemas.tenants import Caps, CapsChange
from palaver.store import Store
from palaver.store.tenants.tenants import Tenant

from .user import typed_by

_NONE: Final = "none"
"""The word that takes a cap away."""


class TenantLine(NamedTuple):
    """A tenant to print."""

    tenant: Tenant
    caps: Caps | None = None
    """None if only who there is was asked for."""

    @property
    def line(self) -> str:
        """It as a line."""
        name, tag, erasing = self.tenant
        if self.caps is None:
            return f"{name}  {tag or '-'}{'  being erased' if erasing else ''}"
        caps = (f"{cap} {value:,}" for cap, value in self.caps.model_dump().items() if value is not None)
        return f"{name}  {tag or '-'}  {', '.join(caps)}"

    @property
    def json(self) -> dict[str, Any]:
        """It as an object."""
        return self.tenant._asdict() | (self.caps.model_dump() if self.caps else {})


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    chosen = _parser().parse_args(arguments)
    change = _change(chosen) if chosen.command == "set" else CapsChange()
    with refusing():
        here = settings()
    try:
        shown = asyncio.run(_run(here, chosen, change))
    except Refused as refused:
        refuse(f"palaver tenants: {refused.detail}", EX_USAGE)
    except StateConflict as conflict:
        refuse(f"palaver tenants: {conflict}", EX_USAGE)
    except Exception as error:
        if classify(error).error_class is not ErrorClass.STORAGE:
            raise
        refuse(f"palaver tenants: Redis does not answer: {error}", EX_UNAVAILABLE)
    for each in shown:
        print(json.dumps(each.json) if chosen.json else each.line)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="palaver tenants", description="The tenants of this installation.")
    commands = parser.add_subparsers(dest="command", title="commands", required=True)
    create = commands.add_parser(
        "create", help="make a tenant", description="Make a tenant, and print its name and its tag."
    )
    create.add_argument("name", metavar="NAME", help="1 to 63 of a-z, 0-9 and -")
    listing = commands.add_parser("list", help="list them", description="List tenants: their names and their tags.")
    show = commands.add_parser("show", help="show its caps", description="Show a tenant with its weight and its caps.")
    change = commands.add_parser(
        "set",
        help="change its caps",
        description=f"Change the weight and the caps of a tenant: they hold from now on, for what waits, too. "
        f"'{_NONE}' takes a cap away.",
    )
    others = []
    for verb in (verb for verbs in brought("tenant_verbs") for verb in verbs):
        other = commands.add_parser(verb.name, help=verb.help, description=verb.description)
        verb.arguments(other)
        other.set_defaults(run=verb.run)
        others.append(other)
    for command in (show, change, *others):
        command.add_argument("name", metavar="NAME", help="'default' is the tenant that is always there")
    for cap in Caps.model_fields:
        kind: Callable[[str], object] = _dollars if cap.startswith("usd") else _number
        change.add_argument(_option(cap), dest=cap, metavar="N", type=kind, default=argparse.SUPPRESS)
    for command in (create, listing, show, change):
        command.add_argument("--json", action="store_true", help="print JSON, a line for each")
    return parser


def _option(cap: str) -> str:
    return f"--{cap.replace('_', '-')}"


def _number(text: str) -> int | None:
    return None if text == _NONE else int(text)


def _dollars(text: str) -> float | None:
    return None if text == _NONE else float(text)


def _change(chosen: argparse.Namespace) -> CapsChange:
    """The caps that are set, as the command line has them."""
    caps = {cap: getattr(chosen, cap) for cap in Caps.model_fields if hasattr(chosen, cap)}
    if not caps:
        refuse(f"palaver tenants: nothing is set: {', '.join(map(_option, Caps.model_fields))}", EX_USAGE)
    try:
        return CapsChange(**caps)
    except ValidationError as error:
        faults = (f"{_option(str(fault['loc'][0]))}: {fault['msg']}" for fault in error.errors())
        refuse(f"palaver tenants: {'; '.join(faults)}", EX_USAGE)


async def _run(here: Settings, chosen: argparse.Namespace, change: CapsChange) -> Sequence[TenantLine]:
    name: str = getattr(chosen, "name", "")
    async with Store.connect(here) as store:
        match chosen.command:
            case "create":
                return [TenantLine(await store.tenants.create(name))]
            case "list":
                return [TenantLine(tenant) for tenant in await store.tenants.list()]
        if "run" in chosen:
            await chosen.run(store, chosen)
            return []
        tenant = await store.tenants.get(name)
        if tenant is None:
            raise Refused("tenant_not_found", f"there is no tenant {name}")
        if chosen.command == "show":
            return [TenantLine(tenant, await store.caps.get(tenant.tag))]
        caps = await store.caps.change(tenant.tag, change)
        facts = {"tenant": name, **change.model_dump(include=change.model_fields_set)}
        await store.audit.add(tenant.tag, "change_tenant", client=typed_by(), facts=facts)
        return [TenantLine(tenant, caps)]


if __name__ == "__main__":
    run_program(main)
