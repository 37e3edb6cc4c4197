"""``palaver tenants export|erase``: tenants that leave."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import BinaryIO

from palaver.config.exits import EX_USAGE, refuse
from palaver.errors import Refused
from palaver.schemas.erasures import Erasure
from palaver.store import Store
from palaver.store.offboarding.slices import erase_in_slices
from palaver.store.tenants.tenants import NO_TENANT

from .user import typed_by


async def export(store: Store, options: argparse.Namespace) -> None:
    """Write what a tenant has, a line of JSON each."""
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


async def erase(store: Store, options: argparse.Namespace) -> None:
    """Erase a tenant, and print the receipt."""
    if not options.yes:
        print(f"All that the tenant {options.name} has goes, for ever. Type its name again: ", end="", file=sys.stderr)
        sys.stderr.flush()
        if sys.stdin.readline().strip() != options.name:
            refuse("palaver tenants: nothing was erased", 1)
    before = None
    async with aclosing(erase_in_slices(store.erasures, options.name, client=typed_by())) as slices:
        async for erasure in slices:
            if not (erasure.done or erasure == before or options.json):
                print(_progress(erasure), file=sys.stderr)
            before = erasure
    if left := await store.erasures.traces(erasure.tag):
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
