"""`python -m palaver.testing.model_server`: the server as a process, until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from palaver.testing.model_server import ModelServer


async def serve(host: str, port: int, ledger: Path | None, api_key: str | None) -> None:
    """Serve until told to stop. Prints one line when ready."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ModelServer(host=host, port=port, ledger=ledger, api_key=api_key) as server:
        print(f"listening on {server.base_url}", flush=True)
        await stop.wait()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m palaver.testing.model_server", description="A scriptable model server for tests."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9101, help="0 takes a free one (default: 9101)")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="append the ledger to it, in JSON lines")
    parser.add_argument("--api-key", metavar="KEY", help="answer 401 to any other key")
    given = parser.parse_args()
    asyncio.run(serve(given.host, given.port, given.ledger, given.api_key))


if __name__ == "__main__":
    main()
