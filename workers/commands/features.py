"""``palaver features``: the features of this installation, and `drop`, which takes out one that no process has.

A program of its own, for where workers run: it has the same features, and the same Redis.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from palaver.cli.text import document
from palaver.config.exits import refusing, run_program
from palaver.config.settings import Settings, settings
from palaver.feature import features
from palaver.store import Store


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code, which is 1 if this place lacks a feature that the installation has."""
    options = _parser().parse_args(arguments)
    with refusing():
        here = settings()
        if options.command == "drop":
            return asyncio.run(_drop(here, options.name))
        return asyncio.run(_show(here, as_json=options.json))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="palaver features",
        description="List the features of this installation, and whether this place has them: they are installed, and "
        "not switched off by PALAVER_FEATURES. Exits 1 if one is lacking.",
    )
    parser.add_argument("--json", action="store_true", help="JSON on standard output and nothing else")
    commands = parser.add_subparsers(dest="command", title="commands")
    drop = commands.add_parser(
        "drop",
        help="take one out that no process has any more",
        description="Take a feature out of the installation. Runs that it was to see go on without it. End the "
        "processes that have it first.",
    )
    drop.add_argument("name")
    return parser


async def _show(here: Settings, *, as_json: bool) -> int:
    async with Store.connect(here) as store:
        kept = await store.feature_set.kept()
    rows = [
        {"name": name, "installation": kept[name].version if name in kept else None, "here": name in features()}
        for name in sorted({*kept, *features()})
    ]
    if as_json:
        print(document({"data": rows}))
    else:
        for row in rows:
            here_too = "here" if row["here"] else "LACKING HERE"
            print(f"{row['name']:<16} {row['installation'] or 'not yet':<12} {here_too}")
    return 0 if all(row["here"] for row in rows) else 1


async def _drop(here: Settings, name: str) -> int:
    async with Store.connect(here) as store:
        runs = await store.feature_set.drop(name)
    print(f"{name} is dropped. Runs that go on without it: {runs}.")
    return 0


if __name__ == "__main__":
    run_program(main)
