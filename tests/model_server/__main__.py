"""`python -m tests.model_server`: the fake provider with its judge as a process, until SIGINT or SIGTERM."""

from __future__ import annotations

from pathlib import Path

from features.fake_provider.__main__ import arguments, run
from tests.model_server import ModelServer


def main() -> None:
    """Read the arguments and serve."""
    parser = arguments("python -m tests.model_server", "The fake provider, strict and with a ledger.")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="append the ledger to it, in JSON lines")
    run(ModelServer(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
