"""``palaver tenants``: make, list, export and erase the tenants of an installation.

A program of its own, for where Redis can be reached: no API has to be up, and no key is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from palaver.config.exits import EX_UNAVAILABLE, EX_USAGE, refuse, refusing
from palaver.config.settings import Settings, settings
from palaver.errors import ErrorClass, Refused, StateConflict, classify
from palaver.schemas.tenants import Erasure
from palaver.store import Store
from palaver.store.offboarding.erasures import NO_TENANT
from palaver.store.tenants.tenants import Tenant

from .typist import typist

_PAUSE: Final = 0.2
"""Seconds between two slices while workers let go of runs, or old requests are answered."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(arguments)
    with refusing():
        here = settings()
    try:
        return asyncio.run(_run(here, options))
    except Refused as refused:
        refuse(f"palaver tenants: {refused.detail}", EX_USAGE)
    except StateConflict as conflict:
        refuse(f"palaver tenants: {conflict}", EX_USAGE)
    except Exception as error:
        if classify(error).error_class is not ErrorClass.STORAGE:
            raise
        refuse(f"palaver tenants: Redis does not answer: {error}", EX_UNAVAILABLE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="palaver tenants", description="The tenants of this installation.")
    commands = parser.add_subparsers(dest="command", title="commands", required=True)
    create = commands.add_parser(
        "create", help="make a tenant", description="Make a tenant, and print its name and its tag."
    )
    listing = commands.add_parser("list", help="list them", description="List tenants: their names and their tags.")
    export = commands.add_parser(
        "export", help="write all that one has", description="Write what a tenant has, a line of JSON each."
    )
    export.add_argument("-o", "--output", metavar="FILE", help="a new file [standard output]")
    erase = commands.add_parser(
        "erase", help="erase one", description="Erase all that a tenant has, and print the receipt. It can be repeated."
    )
    erase.add_argument("--yes", "-y", action="store_true", help="do not ask for the name again")
    for command in (create, export, erase):
        command.add_argument("name", metavar="NAME", help="1 to 63 of a-z, 0-9 and -")
    for command in (create, listing, erase):
        command.add_argument("--json", action="store_true", help="print JSON, a line for each")
    return parser


async def _run(here: Settings, options: argparse.Namespace) -> int:
    async with Store.connect(here) as store:
        match options.command:
            case "create":
                _show(await store.tenants.create(options.name), options)
            case "list":
                for tenant in await store.tenants.list():
                    _show(tenant, options)
            case "export":
                await _export(store, options)
            case _:
                return await _erase(store, options)
    return 0


def _show(tenant: Tenant, options: argparse.Namespace) -> None:
    said = f"{tenant.name}  {tenant.tag or '-'}{'  being erased' if tenant.erasing else ''}"
    print(json.dumps(tenant._asdict()) if options.json else said)


async def _export(store: Store, options: argparse.Namespace) -> None:
    tenant = await store.tenants.get(options.name)
    if tenant is None:
        raise Refused("tenant_not_found", NO_TENANT)
    with _output(options.output) as file:
        async with aclosing(store.exports.begin(tenant)) as lines:
            async for line in lines:
                file.write(line)
        file.flush()


@contextmanager
def _output(path: str | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        Path(path).touch(exist_ok=False)
    except OSError as error:
        refuse(f"palaver tenants: {path}: {error.strerror}", EX_USAGE)
    with Path(path).open("wb") as file:
        yield file


async def _erase(store: Store, options: argparse.Namespace) -> int:
    if not options.yes:
        print(f"All that the tenant {options.name} has goes, for ever. Type its name again: ", end="", file=sys.stderr)
        sys.stderr.flush()
        if sys.stdin.readline().strip() != options.name:
            refuse("palaver tenants: nothing was erased", 1)
    before = None
    while True:
        tag = None if before is None else before.tag
        erasure = await store.erasures.erase(options.name, tag=tag, client=typist())
        if erasure.done:
            break
        if erasure == before:
            await asyncio.sleep(_PAUSE)
        elif not options.json:
            print(_progress(erasure), file=sys.stderr)
        before = erasure
    if left := await store.erasures.traces(erasure.tag):
        refuse(f"palaver tenants: of {options.name} there is still {', '.join(left)}: erase it again", 1)
    print(erasure.model_dump_json() if options.json else _receipt(erasure))
    return 0


def _progress(erasure: Erasure) -> str:
    if erasure.unfinished_runs:
        return f"… workers let go of {erasure.unfinished_runs} runs"
    return f"… erased {sum(erasure.erased.model_dump().values())} things so far"


def _receipt(erasure: Erasure) -> str:
    counts = [f"{kind.replace('_', ' ')} {number}" for kind, number in erasure.erased.model_dump().items()]
    times = f"{erasure.began_at:%Y-%m-%dT%H:%M:%SZ} to {erasure.ended_at:%Y-%m-%dT%H:%M:%SZ}"
    return f"erased {erasure.tenant} ({erasure.tag}), {times}: {', '.join(counts)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
