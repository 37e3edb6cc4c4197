"""The processes that serve: `palaver api`, `palaver worker`, `palaver tools` and `palaver flower`.

Each becomes, by `exec`, the program that does the work: uvicorn with the API, Celery's worker, or Flower. So signals,
exit codes and process 1 of a container are that program's own, and what the command line adds goes to it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from palaver.config.exits import EX_CONFIG, EX_UNAVAILABLE, EX_USAGE, refuse, refusing

ROLES: Final[Mapping[str, str]] = {
    "api": "Serve the HTTP API.",
    "worker": "Do model steps: ask models; with --tools tool steps as well.",
    "tools": "Do tool steps: run tools, each call in a process that can be ended, or all on a loop; "
    "`palaver tools check` asks the sources of PALAVER_TOOL_SOURCES.",
    "flower": "Show workers and tasks in a browser.",
}
"""The work of each of them."""
PROGRAMS: Final[Mapping[str, str]] = {
    "providers": "List the model providers; `palaver providers check` asks them.",
    "check": "Ask Redis whether it can be trusted with what it is given.",
    "features": "The features of this installation; `palaver features drop NAME` takes one out.",
    "audit": "Who did what with keys of the API that the store has.",
    "keys": "Keys of the API: `palaver keys create` makes one, and `list`, `rotate` and `revoke` follow.",
    "secrets": "`palaver secrets rotate` seals secrets of conversations with the newest key.",
    "tenants": "`palaver tenants create NAME` makes a tenant; `set`, `show`, `list`, `export` and `erase` follow.",
}
"""Programs for where workers run that serve nothing, and what each of them does."""
SERVER_EXTRA: Final = "pip install 'palaver[server]'"
_NEEDED: Final = ("celery", "flower", "orjson", "redis", "starlette", "uvicorn")
_COLUMNS: Final = "name,args,state,uuid,exception,received,runtime,worker"
"""Columns of Flower's page of tasks: the kind of step, the model or tool, the run that its id begins with, and how it
ended. The least telling ones come last: they leave the screen."""
_LOGINS: Final = ("basic_auth", "auth", "unix_socket")
"""Options of Flower, one of which keeps strangers out."""
_LOOK: Final = 0.2
"""Seconds between two looks for Redis."""


def command(role: str, arguments: Sequence[str] = ()) -> list[str]:
    """The program that a role becomes, in this process: its id keeps the names of two workers on one machine apart.

    Raises SystemExit, with a sentence, if PALAVER_FLOWER_PORT is Flower's and no port.
    """
    tools = role == "worker" and "--tools" in arguments
    return [sys.executable, "-m", *_program(role, tools=tools), *(each for each in arguments if each != "--tools")]


def become(role: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the role's program, once there is a Redis; the API serves without one, too, and says so.

    Raises SystemExit, with a sentence on standard error, if the program could not do its work: status 2 for a flag
    that Flower does not know, 69 if a port is taken, 78 for what is not installed or not set.
    """
    if "--help" not in arguments and os.environ.get("PALAVER_LOG_FORMAT") == "json":
        from palaver.telemetry.logs import serve_json

        serve_json()
    require_server(f"palaver {role}")
    if role == "tools" and arguments[:1] == ["check"]:
        become_program("tool_sources", arguments[1:])
    if role in ("worker", "tools") and arguments:
        from palaver.config.worker_options import check_options

        check_options(role, arguments)
    if "--help" in arguments:
        # To tell its options a program needs to know of a server, and asks none.
        os.environ.pop("PALAVER_REDIS_URL_FILE", None)
        os.environ.pop("PALAVER_FLOWER_PORT", None)
        os.environ["PALAVER_REDIS_URL"] = "redis://localhost"
        program = command(role, arguments)
    else:
        program = command(role, arguments)
        redis = _redis()
        if role == "flower":
            _check_flower(program[program.index("flower") + 1 :])
        if role != "api":
            # Process 1 of a container is not ended by a signal that it does not handle.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            try:
                wait_for_redis(redis)
            except KeyboardInterrupt:
                sys.exit(128 + signal.SIGINT)
        elif why := _unreachable(redis):
            _say(f"no Redis {why}: until there is one, /readyz answers 503")
    os.execv(program[0], program)


def become_program(name: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by one of the ``PROGRAMS``. Raises SystemExit, with a sentence, if it is not installed."""
    become_module(name, _module(f"workers.commands.{name}"), arguments)


def become_module(name: str, module: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by ``palaver NAME``, which is this module. Raises SystemExit as `become_program`."""
    require_server(f"palaver {name}")
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def require_server(who: str) -> None:
    """Raise SystemExit, with a sentence, unless what the extra `server` brings is installed and starts here."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        refuse(f"{who} needs {missing[0]}: {SERVER_EXTRA}", EX_CONFIG)
    # Python looks for a program's modules first in the folder where it is started; a clone has them in other places.
    here = Path("palaver")
    if find_spec("palaver.workers") and (here / "__init__.py").exists() and not (here / "workers").exists():
        refuse(f"{who}: this folder is a clone, from which it would start in part: start it elsewhere", EX_CONFIG)


def port_number(text: str, setting: str) -> int:
    """The port that ``text`` names. Raise SystemExit, with a sentence that names the setting, if it is none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65536):
        refuse(f"{setting}: {text[:80]!r} is no port, which is a number from 1 to 65535", EX_CONFIG)
    return int(text)


def require_port(host: str, port: int, setting: str) -> None:
    """Raise SystemExit, with a sentence that names the setting, if the port cannot be listened on now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            how = f"stop what listens there, or choose another port with --port or {setting}"
            refuse(f"cannot listen on {host}:{port} ({error.strerror}): {how}", EX_UNAVAILABLE)


def _program(role: str, *, tools: bool) -> list[str]:
    if role == "api":
        return [_module("api")]
    json = os.environ.get("PALAVER_LOG_FORMAT") == "json"
    # The banner of a worker is no line of JSON, and stands before the sentence of one that cannot start.
    quiet = [] if role == "flower" else ["-q"]
    app = _module("workers.broker.celery_app" if role == "flower" else "workers.app")
    celery = [_module("workers"), *quiet, "-A", app]
    if role == "flower":
        port = port_number(os.environ.get("PALAVER_FLOWER_PORT") or "5555", "PALAVER_FLOWER_PORT")
        shown = ["--max-tasks=5000", f"--tasks-columns={_COLUMNS}", "--read-only"]
        if json:
            # Its own lines would be for people.
            shown.append("--logging=none")
        return [*celery, "flower", "--address=127.0.0.1", f"--port={port}", *shown]
    queue, capacity = ("model", "500") if role == "worker" else ("tools", _tools_at_once())
    # -E is for Flower, from the first step on; without anybody looking it may go.
    name = f"{queue}.{os.getpid()}@%h"
    alone = ["--without-gossip", "--without-mingle"]
    queues = "model,tools" if tools else queue
    return [*celery, "worker", "-Q", queues, "-c", capacity, "-n", name, *alone, "-E", "-l", "INFO"]


def _tools_at_once() -> str:
    """Calls that a tools worker takes: one a process, or as many as a loop bears (PALAVER_TOOL_POOL)."""
    return "100" if os.environ.get("PALAVER_TOOL_POOL") == "loop" else "4"


def _module(name: str) -> str:
    """A checkout has `workers` and `api` beside `palaver`, an installed wheel below it."""
    package = f"palaver.{name.partition('.')[0]}"
    return f"palaver.{name}" if find_spec(package) else name


def _check_flower(arguments: Sequence[str]) -> None:
    """Flower itself ignores what it does not know, and shows a traceback for a port in use."""
    import flower.options  # noqa: F401  defines them
    from tornado.options import Error, options

    unknown = [
        word for word in arguments if not word.startswith("-") or word.lstrip("-").partition("=")[0] not in options
    ]
    if unknown:
        known = "`palaver flower --help` lists them, and each is --name=value"
        refuse(f"Flower has no option {unknown[0]!r}: {known}", EX_USAGE)
    try:
        options.parse_command_line(["palaver flower", *arguments], final=False)
    except (Error, ValueError) as error:
        refuse(f"Flower: {error}", EX_USAGE)
    if not any(options[name] or os.environ.get(f"FLOWER_{name.upper()}") for name in _LOGINS):
        _require_open_flower()
    if not options.unix_socket:
        require_port(options.address, port_number(str(options.port), "--port"), "PALAVER_FLOWER_PORT")


def _require_open_flower() -> None:
    from palaver.config.settings import settings

    with refusing():
        if not settings().flower_open:
            how = "set FLOWER_BASIC_AUTH=user:password, or PALAVER_FLOWER_OPEN=true if everyone who reaches it may look"
            refuse(f"Flower: there is no login: {how}", EX_CONFIG)


def wait_for_redis(url: str) -> None:
    """Wait until a server listens there, and say so. That has no end: to be started anew, later and later, finds Redis
    no sooner."""
    last = None
    while why := _unreachable(url):
        if why != last:
            _say(f"waiting for Redis {why}: start it, or set PALAVER_REDIS_URL to where it is")
            last = why
        time.sleep(_LOOK)


def _redis() -> str:
    """The address of the store. Raises SystemExit, with a sentence, if it is not set, or none."""
    url = os.environ.get("PALAVER_REDIS_URL") or _store_url()
    _places(url)
    return url


def _store_url() -> str:
    # Only here: it takes a tenth of a second, and the program that this process becomes loads it again.
    from palaver.config.settings import settings

    with refusing():
        return settings().store_url


def _places(url: str) -> Sequence[tuple[str, int]]:
    """Its host and port, or those of its Sentinels or of the servers of a cluster, of which one is enough. Nothing if
    it is a file, or nothing that settings take: they say so."""
    if "+" in url.partition("://")[0]:
        # Not above, as the settings.
        from palaver.config.clusters import cluster_of, is_cluster
        from palaver.config.sentinels import by_sentinels, sentinels_of

        with suppress(ValueError):
            if by_sentinels(url):
                return sentinels_of(url).places
            if is_cluster(url):
                return cluster_of(url).places
        return ()
    try:
        parts = urlsplit(url)
        return [(parts.hostname or "localhost", parts.port or 6379)] if parts.scheme in ("redis", "rediss") else ()
    except ValueError:
        # What is no number there may be a password.
        refuse("PALAVER_REDIS_URL: the port is no number; it is like redis://127.0.0.1:6379/0", EX_CONFIG)


def _unreachable(url: str) -> str | None:
    """Say where no server answers, and why; None if one does, or if that cannot be told."""
    silent: list[str] = []
    for place in _places(url):
        try:
            # In bytes: for letters beyond ASCII Python loads a table of all of Unicode, needed or not.
            host: Any = place[0].encode() if place[0].isascii() else place[0]
            socket.create_connection((host, place[1]), timeout=5).close()
        except OSError as error:
            silent.append(f"{place[0]}:{place[1]} ({error.strerror or error})")
        else:
            return None
    return f"at {', '.join(silent)}" if silent else None


def _say(sentence: str) -> None:
    from palaver.telemetry import logs

    print(logs.sentence(sentence), file=sys.stderr, flush=True)
