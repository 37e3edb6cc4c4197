"""The program behind ``palaver up``: the parent of the whole of Palaver on this machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from palaver.config.exits import refusing, written_out
from palaver.config.roles import wait_for_redis
from palaver.config.secret_files import secret_of
from palaver.errors import ConfigurationError

from .errors import StackError
from .ports import Ports
from .stack import Stack
from .supervision import Supervisor

_OFF: Final = frozenset({"0", "f", "false", "n", "no", "off"})
"""Values of a variable that say no, as settings read them."""
_WELCOME: Final = """
Palaver is up.
  API     {url}{docs}
{console}  Flower  {flower_url}
  logs    {logs}

{more}Submit a run{how}:
  curl -sS {url}/v1/runs {key}-H 'Content-Type: application/json' -H 'Prefer: wait=30' \\
    -d '{{"agent": {{"model": "{model}", "tools": ["calculator"]}}, "input": "hello"}}'

Ctrl-C stops everything; what was submitted stays in the data directory for the next time.
"""


def main() -> None:
    """Start all of it, and again what ends, until a signal. Raises SystemExit, with a sentence, if it cannot."""
    with refusing():
        to_try = model_to_try(os.environ.get("PALAVER_PROVIDERS"))
        lacks = keys_that_lack(os.environ.get("PALAVER_PROVIDERS"))
        keyed = secret_of("PALAVER_API_KEYS") is not None
        redis = secret_of("PALAVER_REDIS_URL")
        stack = Stack.from_environment(os.environ, _say)
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    try:
        if redis:
            wait_for_redis(redis)
        with stack:
            console = os.environ.get("PALAVER_CONSOLE", "").lower() not in _OFF
            _say(welcome(stack, *to_try, keyed=keyed, lacks=lacks, console=console))
            supervisor = Supervisor(stack.processes, _say, time.monotonic())
            while True:
                supervisor.look(time.monotonic())
                time.sleep(0.5)
    except StackError as error:
        sys.exit(f"palaver: {error}")
    except KeyboardInterrupt:
        _say("stopped")


def welcome(
    stack: Stack, model: str, how: str, *, keyed: bool, lacks: Mapping[str, str] | None = None, console: bool = True
) -> str:
    """Say where everything is, and a first request. ``how`` says what to put in the place of a word of it, and
    ``lacks`` which variables are not set that hold keys, by provider."""
    docs = "" if keyed else f"  (try {stack.url}/docs)"
    key = "-H 'Authorization: Bearer KEY' " if keyed else ""
    how += ", with a key of PALAVER_API_KEYS for KEY" if keyed else ""
    where = {
        "url": stack.url,
        "console": f"  Console {stack.url}/console\n" if console else "",
        "flower_url": stack.flower_url,
        "logs": stack.data_dir / "logs",
    }
    more = "".join(
        f"  {variable} is not set: no worker asks {name}. Set it, and start again.\n"
        for name, variable in (lacks or {}).items()
    )
    if stack.ports.api != Ports.api:
        more += f"For the command and the SDK, in another terminal:\n  export PALAVER_URL={stack.url}\n"
    more += "\n" if more else ""
    return _WELCOME.format(**where, docs=docs, key=key, model=model, how=how, more=more)


def keys_that_lack(file: str | None) -> dict[str, str]:
    """The variables with keys of providers of a file that are not set, by provider.

    Raises ConfigurationError if it cannot be used.
    """
    if not file:
        return {}
    from palaver.config.providers import load_providers

    providers = load_providers(Path(file)).items()
    return {name: provider.api_key_env for name, provider in providers if provider.api_key_env and not provider.has_key}


def model_to_try(file: str | None) -> tuple[str, str]:
    """A model that the providers of a file have, or else `fake`, and what is to be said of it.

    A file names models where it lists them or has their prices. Raises ConfigurationError if it cannot be used, or is
    empty.
    """
    if not file:
        return "fake/tool-20", ""
    from palaver.config.providers import load_providers

    for name, provider in load_providers(Path(file)).items():
        named = [*provider.models, *(model for model in provider.prices if model != "*")]
        return (f"{name}/{named[0]}", "") if named else (f"{name}/MODEL", f", with a model of {name} for MODEL")
    raise ConfigurationError(f"PALAVER_PROVIDERS: {file} has no [providers.NAME]")


def _say(line: str) -> None:
    print(line, flush=True)


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    # From here on nothing may cut the shutdown short: make forwards the signal a second time.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    with written_out():
        main()
