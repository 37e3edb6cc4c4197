"""The program behind ``palaver up``: the parent of the whole of Palaver on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from palaver.config.exits import refusing, written_out
from palaver.config.secret_files import secret_of

from .ports import Ports
from .provider_table import keys_that_lack, model_to_try
from .running import keep_running
from .stack import Stack

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

    def ready() -> None:
        console = os.environ.get("PALAVER_CONSOLE", "").lower() not in _OFF
        _say(welcome(stack, *to_try, keyed=keyed, lacks=lacks, console=console))

    keep_running(stack, redis, ready, _say)


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


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    with written_out():
        main()
