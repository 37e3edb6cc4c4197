"""``palaver tenants export|erase``: tenants that leave."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from palaver.cli.commands import TenantVerb
from palaver.config.exits import EX_USAGE, refuse
from palaver.config.settings import settings
from palaver.errors import Refused
from palaver.schemas.erasures import Erasure
from palaver.store import Store
from palaver.store.tenants.tenants import NO_TENANT
from workers.commands.user import typed_by

from .erasures import Erasures
from .exports import Exports
from .slices import erase_in_slices


def _of_export(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="a new file [standard output]")


async def export(store: Store, options: Namespace) -> None:
    """Write what a tenant has, a line of JSON each."""
    await store.feature_set.require_all()
    tenant = await store.tenants.get(options.name)
    if tenant is None:
        raise Refused("tenant_not_found", NO_TENANT)
    with _output(options.output) as file:
        async with aclosing(Exports(store, settings()).begin(tenant)) as lines:
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


def _of_erase(parser: ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask for the name again")
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each")


async def erase(store: Store, options: Namespace) -> None:
    """Erase a tenant, and print the receipt."""
    # A feature that keeps things elsewhere has to be in this process, too.
    await store.feature_set.require_all()
    if not options.yes:
        print(f"All that the tenant {options.name} has goes, for ever. Type its name again: ", end="", file=sys.stderr)
        sys.stderr.flush()
        if sys.stdin.readline().strip() != options.name:
            refuse("palaver tenants: nothing was erased", 1)
    before, erasures = None, store.part(Erasures)
    async with aclosing(erase_in_slices(erasures, options.name, client=typed_by())) as slices:
        async for erasure in slices:
            if not (erasure.done or erasure == before or options.json):
                print(_progress(erasure), file=sys.stderr)
            before = erasure
    if left := await erasures.traces(erasure.tag):
        refuse(f"palaver tenants: of {options.name} there is still {', '.join(left)}: erase it again", 1)
    print(erasure.model_dump_json() if options.json else _receipt(erasure))


def _progress(erasure: Erasure) -> str:
    if erasure.unfinished_runs:
        return f"… workers let go of {erasure.unfinished_runs} runs"
    return f"… erased {sum(erasure.erased.model_dump().values())} things so far"


def _receipt(erasure: Erasure) -> str:
    counts = [f"{kind.replace('_', ' ')} {number}" for kind, number in erasure.erased.model_dump().items()]
    times = f"{erasure.began_at:%Y-%m-%dT%H:%M:%SZ} to {erasure.ended_at:%Y-%m-%dT%H:%M:%SZ}"
    return f"erased {erasure.tenant} ({erasure.tag}), {times}: {', '.join(counts)}"


VERBS: Final = (
    TenantVerb("export", "write all that one has", "Write what a tenant has, a line of JSON each.", _of_export, export),
    TenantVerb(
        "erase",
        "erase one",
        "Erase all that a tenant has, and print the receipt. It can be repeated.",
        _of_erase,
        erase,
    ),
)
