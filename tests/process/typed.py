"""Commands that pages show, typed in a shell whose ``palaver`` starts in a tenth of the time.

It asks a warm parent, which has imported the program, to fork in its place: with its arguments, folder, environment and
open files. Pages have dozens of commands, and most of what each computes would be imports; so have tests of operators'
commands and of commands on a terminal, which ask without a shell. A server is started as users start it, and so is all
that is typed where the page is followed from a terminal (test_followed_pages.py), the program that
test_check_command.py is about, and what test_cli_process.py is. As a program, ``python -m tests.process.typed SOCKET``,
this is that parent.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import termios
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Final, NoReturn

from features.stack.child import dying_with_parent
from tests.pages import ROOT

_ASKS: Final = f"""\
#!{sys.executable} -IS
import json, os, socket, sys
if sys.argv[1:2] and sys.argv[1] in ("api", "worker", "tools", "flower", "up"):
    os.execv({str(Path(sys.executable).with_name("palaver"))!r}, sys.argv)
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), "socket"))
    socket.send_fds(server, [b"!"], [0, 1, 2])
    server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    code = server.recv(8)
sys.exit(int(code) if code else "the command ended without an exit code")
"""
"""What is found as `palaver`."""
_PATIENCE: Final = 60.0
"""Seconds for a command."""
_running: Final = ExitStack()
"""Has the warm parent, from the first command on."""


@contextmanager
def warm_commands() -> Iterator[None]:
    """The warm parent ends with the block; it is started with the first command."""
    with _running:
        yield
    _place.cache_clear()


def shell(
    command: str, environment: Mapping[str, str], *, stdout: int, stderr: int
) -> subprocess.CompletedProcess[str]:
    """Type a command; it finds what is installed beside this interpreter."""
    places = (str(_place()), str(Path(sys.executable).parent), os.environ["PATH"])
    return subprocess.run(
        ["sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        env={**os.environ, **environment, "PATH": os.pathsep.join(places)},
        timeout=_PATIENCE,
        check=False,
    )


def palaver(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command that starts no server, with nothing else in its environment."""
    with TemporaryFile() as out, TemporaryFile() as errors, open(os.devnull) as nothing:
        files = (nothing.fileno(), out.fileno(), errors.fileno())
        with begun(arguments, files, environment) as command:
            code = exit_code(command)
        said = []
        for file in (out, errors):
            file.seek(0)
            said.append(file.read().decode())
        return subprocess.CompletedProcess(["palaver", *arguments], code, *said)


def begun(arguments: Sequence[str], files: Sequence[int], environment: Mapping[str, str]) -> socket.socket:
    """Begin such a command with these as standard input, output and error, in a session of its own if the first is a
    terminal. What comes back says its exit code."""
    server = socket.socket(socket.AF_UNIX)
    server.settimeout(_PATIENCE)
    server.connect(str(_place() / "socket"))
    socket.send_fds(server, [b"!"], [*files])
    server.sendall(json.dumps([["palaver", *arguments], str(ROOT), {**environment}]).encode())
    server.shutdown(socket.SHUT_WR)
    return server


def exit_code(command: socket.socket) -> int:
    """How a command has ended that was begun; waits for that."""
    code = command.recv(8)
    assert code, "the command ended without an exit code"
    return int(code)


@cache
def _place() -> Path:
    """Where the `palaver` is that asks the warm parent."""
    return _running.enter_context(_parent())


@contextmanager
def _parent() -> Iterator[Path]:
    with TemporaryDirectory(prefix="typed-") as name:
        folder = Path(name)
        (folder / "palaver").write_text(_ASKS)
        (folder / "palaver").chmod(0o755)
        command = dying_with_parent([sys.executable, "-m", "tests.process.typed", str(folder / "socket")])
        environment = {**os.environ, "PYTHONUTF8": "1"}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "ready\n"
            try:
                yield folder
            finally:
                parent.kill()


# The warm parent.


def main(path: str) -> None:
    """Import, then fork for each command that is typed."""
    for package in ("palaver.cli", "workers.commands"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        while True:
            asked, _ = server.accept()
            with asked:
                if os.fork() == 0:
                    server.close()
                    _become(asked)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _become(asked: socket.socket) -> NoReturn:
    """Be the command, and say how it ended."""
    code = 1
    try:
        code = _run(asked)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        asked.sendall(str(code).encode())
        os._exit(0)


def _run(asked: socket.socket) -> int:
    from palaver.cli import main as command
    from palaver.config.settings import settings

    _, files, _, _ = socket.recv_fds(asked, 1, 3)
    with asked.makefile("rb") as said:
        sys.argv, folder, environment = json.loads(said.read())
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if os.isatty(0):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    settings.cache_clear()
    os.execv = _execv  # type: ignore[assignment]
    try:
        command()
    except SystemExit as exit:
        if isinstance(exit.code, str):
            print(exit.code, file=sys.stderr)
            return 1
        return exit.code or 0
    return 0


def _execv(path: str, argv: Sequence[str]) -> NoReturn:
    """Become a program of operators, which is the last that a command does."""
    assert [path, "-m"] == [argv[0], argv[1]], argv
    sys.modules.pop(argv[2], None)
    sys.argv = [*argv[2:]]
    runpy.run_module(argv[2], run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    main(sys.argv[1])
