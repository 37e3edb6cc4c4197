"""``palaver audit``: who did what with keys of the store, read beside it.

A program of its own, for where the API runs: it has the same Redis, as the same user.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from palaver.cli.text import document, one_line
from palaver.config.exits import EX_UNAVAILABLE, refuse, refusing, run_program
from palaver.config.settings import Settings, settings
from palaver.errors import ErrorClass, classify
from palaver.schemas.audit import AuditEntry
from palaver.store import Store
from palaver.vocabulary.durations import in_seconds
from palaver.vocabulary.limits import limit_of

_PAGE: Final = limit_of("audit_page")


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(arguments)
    with refusing():
        here = settings()
        try:
            asyncio.run(_run(here, options))
        except Exception as error:
            if classify(error).error_class is not ErrorClass.STORAGE:
                raise
            refuse(f"palaver audit: the store does not answer: {error}", EX_UNAVAILABLE)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="palaver audit",
        description="Who did what with keys of the API that the store has, the oldest first. For where the API runs.",
    )
    parser.add_argument("--tenant", metavar="T", help="the tenant whose acts are shown [the default one]")
    parser.add_argument("--since", type=_ago, metavar="TIME", help="not those before, such as 7d [all that is kept]")
    parser.add_argument("--json", action="store_true", help="a line of JSON each, and nothing else")
    return parser


def _ago(text: str) -> datetime:
    try:
        return datetime.now(UTC) - timedelta(seconds=in_seconds(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def _run(here: Settings, options: argparse.Namespace) -> None:
    async with Store.connect(here) as store:
        tag = ""
        if options.tenant is not None:
            tenant = await store.tenants.get(options.tenant)
            if tenant is None:
                refuse(f"palaver audit: there is no tenant {options.tenant[:80]!r}", 1)
            tag = tenant.tag
        after = ""
        while page := await store.audit.read(tag, after=after, since=options.since, limit=_PAGE):
            for act in page:
                print(document(act.model_dump(mode="json")) if options.json else _line(act))
            after = page[-1].id


def _line(act: AuditEntry) -> str:
    who = f"{act.key or '-'}{' (operator)' if act.operator else ''}"
    facts = " ".join(f"{name}={value}" for name, value in act.facts.items())
    status = "unknown" if act.status is None else str(act.status)
    return one_line(f"{act.at:%Y-%m-%dT%H:%M:%SZ} {who} {act.operation} {facts} {status} from {act.client or '-'}", 500)


if __name__ == "__main__":
    run_program(main)
