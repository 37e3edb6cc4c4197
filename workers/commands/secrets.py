"""``palaver secrets rotate``: seal secrets of conversations with the first key of ``PALAVER_SECRET_KEY``.

A program of its own, for where workers run: it has the same keys, and the same Redis.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from palaver.config.exits import refusing, run_program
from palaver.config.settings import Settings, settings
from palaver.errors import ConfigurationError
from palaver.store import Store
from palaver.store.conversations.vault import Sealed


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code, which is 1 if some could not be opened."""
    parser = argparse.ArgumentParser(prog="palaver secrets", description="Secrets of conversations.")
    commands = parser.add_subparsers(dest="command", title="commands", required=True)
    commands.add_parser(
        "rotate",
        help="seal them with the newest key",
        description="Seal secrets of conversations, and keys of agents' endpoints, with the first key of "
        "PALAVER_SECRET_KEY. Exits 1 if some need a key that is not among these, or were changed in the store.",
    )
    parser.parse_args(arguments)
    with refusing():
        here = settings()
        if not here.secret_key:
            raise ConfigurationError("PALAVER_SECRET_KEY is not set: there is no key to seal with")
        sealed = asyncio.run(_rotate(here))
    print(f"{sealed.done} sealed anew with the first key of PALAVER_SECRET_KEY.")
    if sealed.left:
        print(f"{sealed.left} need a key that is not among these: keep it in the list where they are used.")
    for place in sealed.broken:
        print(f"{place}: it was changed, and it cannot be opened. Set it again, or remove it.")
    if sealed.left or sealed.broken:
        return 1
    print("No other key is needed any more.")
    return 0


async def _rotate(here: Settings) -> Sealed:
    async with Store.connect(here) as store:
        return await store.vault.seal_anew()


if __name__ == "__main__":
    run_program(main)
