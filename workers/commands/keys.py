"""``palaver keys``: keys of the API, made, listed, rotated and revoked beside the store.

A program of its own, for where the API runs: it has the same Redis, as the same user. The first key of an operator
comes from here.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from palaver.cli.text import document
from palaver.config.exits import EX_UNAVAILABLE, refuse, refusing, run_program
from palaver.config.settings import Settings, settings
from palaver.errors import ErrorClass, NotDurable, Refused, StateConflict, classify
from palaver.schemas.api_keys import KeyInfo, KeyList, KeyRequest, MadeKey
from palaver.store import Store
from palaver.store.access.api_keys import KeyGrant, KeyRecord
from palaver.vocabulary.durations import in_seconds
from palaver.vocabulary.ids import is_id, tenant_of
from palaver.vocabulary.scopes import SCOPES

from .user import typed_by

_DAY: Final = 86_400
_OPEN: Final = (
    "the API wants no key here: set PALAVER_REQUIRE_KEYS=true, or PALAVER_API_KEYS, or everyone who reaches it may do "
    "everything"
)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code, which is 1 if it was refused."""
    options = _parser().parse_args(arguments)
    with refusing():
        here = settings()
        try:
            return asyncio.run(_run(here, options))
        except NotDurable as error:
            refuse(f"palaver keys: {error}", EX_UNAVAILABLE)
        except (Refused, StateConflict) as error:
            refuse(f"palaver keys: {error}", 1)
        except Exception as error:
            if classify(error).error_class is not ErrorClass.STORAGE:
                raise
            refuse(f"palaver keys: the store does not answer: {error}", EX_UNAVAILABLE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="palaver keys",
        description="Keys of the API, which the store keeps. For where the API runs: with its PALAVER_REDIS_URL.",
    )
    commands = parser.add_subparsers(dest="command", title="commands", required=True)
    create = commands.add_parser("create", help="make one, and print it once", description="Make a key.")
    create.add_argument("name", metavar="NAME", help="what its bearer does is recorded under this name")
    create.add_argument("--tenant", metavar="T", help="the tenant that it is of [the default one]")
    create.add_argument(
        "--scope", action="append", choices=SCOPES, default=[], metavar="S", help=f"what it may do: {', '.join(SCOPES)}"
    )
    create.add_argument("--agent", action="append", metavar="A", help="an agent of the server that it may run [any]")
    create.add_argument("--conversation", metavar="C", help="the one conversation that it is for [any]")
    create.add_argument("--expires", type=_time, metavar="TIME", help="when it expires, such as 30d [never]")
    create.add_argument("--operator", action="store_true", help="it sees all tenants, and has all scopes by default")
    listing = commands.add_parser("list", help="list them", description="List the keys of a tenant.")
    listing.add_argument("--tenant", metavar="T", help="as above")
    rotate = commands.add_parser(
        "rotate", help="replace one", description="Make a key with the same rights, and print it once."
    )
    rotate.add_argument("id", metavar="ID", help="the key to replace, as `palaver keys list` shows it")
    rotate.add_argument(
        "--overlap", type=_time, default=_DAY, metavar="TIME", help="how long the old one stays valid [1d]"
    )
    revoke = commands.add_parser("revoke", help="forget one", description="Forget a key: within a second it is none.")
    revoke.add_argument("id", metavar="ID", help="as `palaver keys list` shows it")
    for command in (create, listing, rotate, revoke):
        command.add_argument("--json", action="store_true", help="JSON on standard output and nothing else")
    return parser


def _time(text: str) -> int:
    try:
        return round(in_seconds(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def _run(here: Settings, options: argparse.Namespace) -> int:
    async with Store.connect(here) as store:
        match options.command:
            case "create":
                made = await store.api_keys.create(await _grant(store, options))
                await _keep(store, "create_key", made.record, made.record.id)
                if not here.keyed:
                    print(f"palaver keys: {_OPEN}", file=sys.stderr)
                _show_made(made.shown(), options)
            case "list":
                tag, _ = await _tenant(store, options.tenant)
                _show_list([record.shown(used) for record, used in await store.api_keys.list(tag)], options)
            case "rotate":
                rotated = await store.api_keys.rotate(options.id, overlap=options.overlap)
                await _keep(store, "rotate_key", rotated.record, options.id)
                _show_made(rotated.shown(), options)
            case _:
                record = await store.api_keys.revoke(options.id)
                await _keep(store, "revoke_key", record, record.id)
                _show({"revoked": record.id}, f"revoked {record.id} ({record.grant.name})", options)
    return 0


async def _keep(store: Store, operation: str, record: KeyRecord, key_id: str) -> None:
    """Keep an act of the person who types this."""
    facts = {"api_key": key_id, "name": record.grant.name, "created": record.id}
    await store.audit.add(record.grant.tenant, operation, client=typed_by(), facts=facts)


async def _grant(store: Store, options: argparse.Namespace) -> KeyGrant:
    request = _request(options)
    if not request.scopes and not request.operator:
        refuse(f"palaver keys: what may it do? Give --scope, of {', '.join(SCOPES)}", 2)
    if request.operator and (request.tenant or request.agents or request.conversation):
        refuse("palaver keys: an operator's key is held to nothing, and to no tenant", 2)
    if request.conversation is not None and not is_id("conv", request.conversation):
        refuse("palaver keys: --conversation is not the id of one", 2)
    tag, name = await _tenant(store, request.tenant)
    if request.conversation is not None and tenant_of(request.conversation) != tag:
        refuse("palaver keys: --conversation is not of the key's tenant: give its --tenant", 2)
    return KeyGrant.of(request, tag, name)


def _request(options: argparse.Namespace) -> KeyRequest:
    try:
        return KeyRequest(
            name=options.name,
            scopes=tuple(dict.fromkeys(options.scope)),
            agents=None if options.agent is None else tuple(options.agent),
            conversation=options.conversation,
            expires_in=options.expires,
            tenant=options.tenant,
            operator=options.operator,
        )
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        refuse(f"palaver keys: {faults}", 2)


async def _tenant(store: Store, name: str | None) -> tuple[str, str | None]:
    if name is None:
        return "", None
    tenant = await store.tenants.get(name)
    if tenant is None:
        refuse(f"palaver keys: there is no tenant {name[:80]!r}", 1)
    return tenant.tag, tenant.name if tenant.tag else None


def _show_made(made: MadeKey, options: argparse.Namespace) -> None:
    if not options.json:
        print(f"{made.id} ({made.name}). The key is shown this once:", file=sys.stderr)
    _show(made, made.key, options)


def _show_list(keys: list[KeyInfo], options: argparse.Namespace) -> None:
    lines = ["ID            NAME  SCOPES  EXPIRES  LAST USED", *map(_line, keys)] if keys else ["No keys."]
    _show(KeyList(data=keys), "\n".join(lines), options)


def _line(key: KeyInfo) -> str:
    held = [f"agents {', '.join(key.agents)}"] if key.agents is not None else []
    held += [key.conversation] if key.conversation else []
    rights = "operator" if key.operator else ",".join(key.scopes)
    facts = (key.id, key.name, rights, *held, f"expires {_day(key.expires_at)}", f"used {_day(key.last_used_at)}")
    return "  ".join(facts)


def _day(at: datetime | None) -> str:
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M}Z"


def _show(what: BaseModel | dict[str, Any], text: str, options: argparse.Namespace) -> None:
    shown = what.model_dump(mode="json") if isinstance(what, BaseModel) else what
    print(document(shown) if options.json else text)


if __name__ == "__main__":
    run_program(main)
