"""Ends of processes that cannot do their work: with one sentence, and a code that says whether to try again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

EX_USAGE: Final = 2
"""An option that there is not; also what Celery and argparse exit with."""
EX_UNAVAILABLE: Final = 69
"""As in sysexits.h: it may go well the next time."""
EX_CONFIG: Final = 78
"""As in sysexits.h: it will not go well until something is changed."""
_INTERRUPTED: Final = 130
"""Ctrl-C: 128 + SIGINT, as shells have it."""


def refuse(sentence: str, status: int) -> NoReturn:
    """End this process with a sentence, without the secrets in it."""
    # Not above, as in `presentable`: a process that ends takes its time, and one that begins does without.
    import logging

    from palaver.telemetry import logs

    # Celery has its log in the place of sys.stderr.
    print(logs.sentence(presentable(sentence), logging.CRITICAL), file=sys.__stderr__, flush=True)
    raise SystemExit(status)


@contextmanager
def refusing() -> Iterator[None]:
    """End the process with one sentence on standard error, and exit code 78, where the configuration is wrong."""
    # Not above: with it comes pydantic, which takes a tenth of a second, and `palaver --help` does without.
    from palaver.errors import ConfigurationError
    from palaver.feature import NoSuchFeature

    try:
        yield
    except (ConfigurationError, NoSuchFeature) as error:
        refuse(str(error), EX_CONFIG)


def presentable(text: str) -> str:
    """Return ``text`` as a process that ends may show it: without its secrets, and without the passwords in addresses
    that its environment has for tools. An exception of an import may repeat any of them."""
    from palaver.secrets.redaction import passwords_of, redact, register_secrets

    register_secrets(password for value in os.environ.values() for password in passwords_of(value))
    return redact(text)


@contextmanager
def written_out() -> Iterator[None]:
    """Around a command: what it cannot write, such as its answer to a disk that is full, is a sentence and status 2."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # What is still to be written is not tried again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        with suppress(OSError):
            print(f"palaver: {error.filename or 'standard output'}: {error.strerror or error}.", file=sys.stderr)
        sys.exit(2)


def run_program(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Call the ``main`` of one of the programs with the arguments of this process, and exit as it says, or with 130
    after Ctrl-C."""
    try:
        with written_out():
            code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = _INTERRUPTED
    sys.exit(code)
