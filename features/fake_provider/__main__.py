"""`python -m palaver.features.fake_provider`: the provider as a process, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import signal

from .server import FakeProvider


def arguments(program: str, description: str) -> argparse.ArgumentParser:
    """The arguments of a provider."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9101, help="0 takes a free one (default: 9101)")
    parser.add_argument("--api-key", metavar="KEY", help="answer 401 to any other key")
    return parser


def run(provider: FakeProvider) -> None:
    """Serve until told to stop. Prints one line when ready."""
    asyncio.run(_serve(provider))


async def _serve(provider: FakeProvider) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with provider:
        print(f"listening on {provider.base_url}", flush=True)
        await stop.wait()


def main() -> None:
    """Read the arguments and serve."""
    parser = arguments(f"python -m {__package__}", "A scriptable provider of models.")
    run(FakeProvider(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
