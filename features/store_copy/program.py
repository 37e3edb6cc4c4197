"""``palaver store``: `copy` has a store at another server or cluster.

A program of its own, for where both can be reached: no API has to be up, and no setting is read.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Final

from palaver.cli.text import document
from palaver.config.exits import EX_CONFIG, EX_UNAVAILABLE, EX_USAGE, refuse, refusing, run_program
from palaver.config.secret_files import secret_of
from palaver.config.server_urls import known_server
from palaver.errors import Refused, StoreUnavailable
from palaver.secrets.redaction import passwords_of, register_secrets

from .copying import Copying, CopyReceipt
from .places import CopyPlace

_FROM: Final = "PALAVER_COPY_FROM"
_TO: Final = "PALAVER_COPY_TO"


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code, which is 1 if the copy is not whole."""
    options = _parser().parse_args(arguments)
    with refusing():
        source = _address(options.source, "--from", _FROM)
        target = _address(options.target, "--to", _TO)
    tell = partial(print, "palaver store copy:", file=sys.stderr, flush=True)
    try:
        receipt = asyncio.run(_copy(source, target, ahead=options.ahead, tell=tell))
    except Refused as refused:
        refuse(f"palaver store copy: {refused.detail}", EX_USAGE)
    except StoreUnavailable as error:
        refuse(f"palaver store copy: {error}", EX_UNAVAILABLE)
    if options.json:
        told = {field.name: getattr(receipt, field.name) for field in fields(receipt)}
        print(document({**told, "conversations": receipt.conversations}))
    else:
        print("\n".join(_described(receipt)))
    for sentence in receipt.wrong:
        tell(sentence)
    return 1 if receipt.wrong else 0


async def _copy(source: str, target: str, *, ahead: bool, tell: partial[None]) -> CopyReceipt:
    async with CopyPlace("source", source) as here, CopyPlace("target", target) as there:
        return await Copying(here, there, ahead=ahead, tell=tell).run()


def _address(given: str | None, option: str, variable: str) -> str:
    """Return an address of the command line, or of the environment. Raises SystemExit if it is none."""
    url = given or secret_of(variable)
    if not url:
        refuse(f"palaver store copy: {option} is missing: give it, or set {variable} or {variable}_FILE", EX_USAGE)
    register_secrets(passwords_of(url))
    try:
        return known_server(url, amqp=False)
    except ValueError as error:
        refuse(f"palaver store copy: {option}: {error}", EX_CONFIG)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="palaver store", description="The store as a whole.")
    commands = parser.add_subparsers(dest="command", title="commands", required=True)
    copy = commands.add_parser(
        "copy",
        help="copy it to another server or cluster",
        description="Make the store at one address what that at another one is, compare the two, and print a receipt. "
        "All APIs and workers have to be stopped, but for --ahead. It can be ended and begun again. Exits 1 if the "
        "copy is not whole, 2 if it is refused, 69 if one does not answer, 78 if an address is none.",
    )
    address = "[{}, or the file that {}_FILE names: arguments show in process lists]"
    copy.add_argument("--from", dest="source", metavar="URL", help=f"the source {address.format(_FROM, _FROM)}")
    copy.add_argument("--to", dest="target", metavar="URL", help=f"the target {address.format(_TO, _TO)}")
    copy.add_argument("--ahead", action="store_true", help="copy what can be copied while the source is in use")
    copy.add_argument("--json", action="store_true", help="JSON on standard output and nothing else")
    return parser


def _described(receipt: CopyReceipt) -> list[str]:
    """The receipt, for people."""
    done = "copied ahead" if receipt.ahead else "NOT WHOLE" if receipt.wrong else "copied and compared"
    lines = [
        f"{done}: {receipt.keys:,} keys, {receipt.conversations:,} conversations, {receipt.seconds:.1f} s",
        f"  written: {receipt.written:,} keys, {receipt.size:,} bytes; removed: {receipt.removed:,} keys",
        "  kinds: " + ", ".join(f"{kind} {number:,}" for kind, number in sorted(receipt.kinds.items())),
        f"  shards: set PALAVER_SHARDS to {receipt.shards} or more where the target is used",
    ]
    if receipt.left:
        lines.append("  left: " + ", ".join(f"{name}* {number:,}" for name, number in sorted(receipt.left.items())))
    if receipt.ahead:
        lines.append("  next: stop all APIs and workers, and copy without --ahead")
    return lines + [f"  note: {note}" for note in receipt.notes]


if __name__ == "__main__":
    run_program(main)
