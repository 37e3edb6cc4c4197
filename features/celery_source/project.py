"""The Celery application of a project, told in plain data by a process of its own, which imports it.

A project comes with settings and side effects of its own, and none of them is for a worker of Palaver's. This file is
both sides: `read` starts it as a program, and it knows no module of the workers, so that it begins in half the time.
"""

from __future__ import annotations

import inspect
import logging
import marshal
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, Final

from celery import Celery
from celery.app.defaults import DEFAULTS
from kombu.entity import Exchange, Queue

from palaver import tool
from palaver.errors import ConfigurationError
from palaver.late import dataclass

log = logging.getLogger("palaver.workers.sources.celery")

_SECONDS: Final = 120
"""The most for a project to be imported."""
_SOON: Final = 5
"""Seconds after which the wait is said."""
_MOST: Final = 4 * 1024 * 1024
"""Bytes of all that a project tells."""
_MOST_SAID: Final = 1_000
"""Characters of what an exception of a project says."""
_NOT_FOR_SENDING: Final = ("beat_", "worker_", "imports", "include", "task_routes", "task_queues", "task_annotations")
"""How settings begin that are not for those who send tasks, or, as routes are, told for each task."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A task of which something is asked."""

    tool: str
    task: str
    queue: str | None
    parameters: bool
    """True: its signature is wanted, as a schema."""


class Unread(ConfigurationError):
    """The project could not be imported."""


def read(place: str, tasks: Iterable[Asked]) -> Mapping[str, Any]:
    """Return what the application at ``module:attribute`` tells: its ``settings``, the names of those that are
    ``untold`` as they are no plain data, and its ``tasks`` by the names of their tools, with ``parameters``,
    ``description``, ``route``, or an ``error``. What a process has read its children have.

    Raises:
        Unread: it cannot be imported, or not within two minutes.
    """
    return _read(place, tuple(tasks), tuple(sys.path))


@cache
def _read(place: str, tasks: tuple[Asked, ...], path: tuple[str, ...]) -> Mapping[str, Any]:
    command = f"python -c 'import {place.partition(':')[0]}'"
    asked = marshal.dumps({"place": place, "path": path, "tasks": [asdict(task) for task in tasks]})
    with subprocess.Popen(
        # Not in the folder of this file, whose modules have names that a project's may have, too.
        [sys.executable, "-P", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:
        try:
            told = _told(child, place, asked)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            raise Unread(
                f"{place} was not imported within {_SECONDS} s; see what it waits for, with `{command}`"
            ) from None
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    if not told:
        raise Unread(
            f"cannot import {place}: its process ended with status {child.returncode}; see what it says, with "
            f"`{command}`"
        )
    found: Mapping[str, Any] = marshal.loads(told)
    if "error" in found:
        raise Unread(f"cannot import {place}: {found['error']}")
    if untold := ", ".join(found["untold"]):
        log.warning("%s: settings that are code of the project have no effect here: %s", place, untold)
    return found


def _told(child: subprocess.Popen[bytes], place: str, asked: bytes) -> bytes:
    try:
        return child.communicate(asked, timeout=_SOON)[0]
    except subprocess.TimeoutExpired:
        log.warning("waiting for %s to be imported, by process %d, for up to %d s", place, child.pid, _SECONDS)
    return child.communicate(timeout=_SECONDS - _SOON)[0]


def route_of(app: Celery, task: str, queue: str | None) -> dict[str, Any]:
    """The options with which an application sends a task: those of the task, and those of its router, which is asked
    without arguments. ``queue`` goes before both; when a task expires is said with each."""
    known = app.tasks.get(task)
    options = {} if known is None else dict(known._get_exec_options())
    given = {name: value for name, value in (options | {"expires": None}).items() if value is not None}
    return dict(app.amqp.router.route(given | ({"queue": queue} if queue else {}), task, (), {}, known))


def with_entities(route: Mapping[str, Any]) -> dict[str, Any]:
    """A route that was told as plain data, with its queue and its exchange as kombu knows them."""
    made = dict(route)
    if isinstance(exchange := made.get("exchange"), dict):
        made["exchange"] = Exchange(**exchange)
    if isinstance(queue := made.get("queue"), dict):
        made["queue"] = Queue(**{**queue, "exchange": Exchange(**queue["exchange"])})
    return made


def _plain(value: Any) -> Any:
    """The same as plain data.

    Raises:
        TypeError: it is none.
    """
    match value:
        case None | bool():
            return value
        case Mapping():
            return {_plain(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case Queue() | Exchange():
            return _plain(value.as_dict(recurse=True))
        case timedelta():
            return value.total_seconds()
        case os.PathLike():
            return os.fspath(value)
        # Made of their own types: a number of an enumeration has another.
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
        case bytes():
            return bytes(value)
    raise TypeError(type(value).__name__)


def _without_code(values: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[str]]:
    """What is plain in a mapping, and the names of the rest."""
    plain, code = {}, []
    for name, value in values.items():
        try:
            plain[name] = _plain(value)
        except TypeError:
            code.append(name)
    return plain, code


def _said(error: BaseException) -> str:
    said = f"{error}" if isinstance(error, ImportError | ConfigurationError) else f"{type(error).__name__}: {error}"
    return said[:_MOST_SAID]


def _imported(place: str) -> Celery:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute, None)
    if not isinstance(found, Celery):
        raise ConfigurationError(f"{place} is no Celery application")
    found.loader.import_default_modules()
    found.finalize()
    return found


def _tell(place: str, tasks: Iterable[Asked]) -> dict[str, Any]:
    app = _imported(place)
    settings, untold = {}, []
    for name, usual in DEFAULTS.items():
        if name.startswith(_NOT_FOR_SENDING) or (value := getattr(app.conf, name)) == usual:
            continue
        try:
            settings[name] = _plain(value)
        except TypeError:
            # Of a mapping, such as that of options, the other ones are told.
            settings[name], code = _without_code(value) if isinstance(value, Mapping) else (usual, ())
            untold += [f"{name}.{each}" for each in code] or [name]
    if not type(app.backend).__module__.startswith("celery."):
        # One that the project brings needs the project.
        settings.pop("result_backend", None)
        untold.append("result_backend")
    return {"settings": settings, "untold": untold, "tasks": {each.tool: _task(app, each) for each in tasks}}


def _task(app: Celery, asked: Asked) -> Mapping[str, Any]:
    task = app.tasks.get(asked.task)
    if task is None:
        return {"error": f"the application has no task {asked.task!r}"}
    try:
        parameters = tool(name=asked.tool)(task.run).parameters if asked.parameters else None
    except ConfigurationError as error:
        return {"error": f"{_said(error)}: give parameters"}
    try:
        route = _plain(route_of(app, asked.task, asked.queue))
    except Exception as error:  # of code of users
        return {"error": f"its route is not known: {_said(error)}"}
    return {"parameters": parameters, "description": inspect.getdoc(task.run) or "", "route": route}


def _main() -> None:
    """Read what is asked from standard input, and tell it on what was standard output."""
    signal.alarm(2 * _SECONDS)  # were this left behind, it would end by itself
    # What a project writes there is no answer.
    answer, silent = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    asked = marshal.loads(sys.stdin.buffer.read())
    sys.path = list(asked["path"])
    try:
        told = marshal.dumps(_tell(asked["place"], [Asked(**task) for task in asked["tasks"]]))
        if len(told) > _MOST:
            raise ConfigurationError(f"it tells {len(told):,} bytes of itself, of at most {_MOST:,}")
    except BaseException as error:  # of code of users, which may want to exit
        told = marshal.dumps({"error": _said(error)})
    with open(answer, "wb") as out:
        out.write(told)
    # Threads of the project are not waited for.
    os._exit(0)


if __name__ == "__main__":
    _main()
