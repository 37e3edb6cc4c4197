"""A RabbitMQ node of our own: own name, ports and folder, loopback only, ours to kill; nothing of it stays."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from features.stack.child import ChildCommand
from features.stack.ports import HOST, free_port
from features.stack.readiness import accepts
from tests.waiting import eventually

_PROGRAMS = (Path("/usr/lib/rabbitmq/bin/rabbitmq-server"), Path("/opt/homebrew/sbin/rabbitmq-server"))
"""The server itself: what packages put on PATH wants to become another user first."""
_START_WITHIN = 60.0
_MEMORY = "vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 1MB\n"
"""What else runs on the machine is no reason to hold publishers up."""
_SMALL = "+S 1:1 +SDcpu 1:1 +SDio 1 +A 1"
"""One thread of each kind: a node starts with a quarter less of processor time."""


def find_server() -> str | None:
    """The server program; None where RabbitMQ is not installed."""
    packaged = next((str(path) for path in _PROGRAMS if os.access(path, os.X_OK)), None)
    return packaged or shutil.which("rabbitmq-server")


class RabbitServer:
    """One node in `folder`. `options` are lines for its rabbitmq.conf, `variables` for its advanced.config.

    Its data stay over `kill` and `start`. It ends with the process that started it, as does the port mapper that it
    needs (epmd), which is its own as well.
    """

    def __init__(self, folder: Path, *, options: str = "", variables: str = "") -> None:
        program = find_server()
        assert program is not None, "RabbitMQ is not installed: apt-get install rabbitmq-server"
        folder.mkdir(parents=True, exist_ok=True)
        self.port, distribution, mapper = free_port(), free_port(), free_port()
        (folder / "rabbitmq.conf").write_text(_MEMORY + options)
        (folder / "advanced.config").write_text(f"[{{rabbit, [{variables}]}}].\n")
        (folder / "plugins").write_text("[].\n")
        environment: Mapping[str, str] = {
            "PATH": os.environ.get("PATH", os.defpath),
            # Where Erlang keeps the cookie of its cluster.
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"palaver{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            # A node that cannot start leaves it where it was started: in the repository.
            "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
            # The shell script becomes the node, so that our signals reach it; nobody types into it all the same.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-noinput -kernel inet_dist_use_interface {{127,0,0,1}} {_SMALL}",
        }
        self._mapper = ChildCommand(
            "epmd",
            ("epmd", "-port", str(mapper), "-address", HOST),
            environment=environment,
            log_path=folder / "epmd.log",
            ready=lambda _: accepts(mapper),
        )
        self._node = ChildCommand(
            "rabbitmq",
            (program,),
            environment=environment,
            log_path=folder / "rabbitmq.log",
            ready=lambda node: "Server startup complete" in node.output,
        )

    @property
    def url(self) -> str:
        """What PALAVER_BROKER_URL wants."""
        return f"amqp://guest:guest@{HOST}:{self.port}//"

    @property
    def running(self) -> bool:
        """Whether the node exists, paused or not."""
        return self._node.running

    @property
    def log(self) -> str:
        """What the node has written since its last start."""
        return self._node.output

    def start(self) -> None:
        """Start the node, and return once it takes connections: mostly 5 s. Does nothing when it runs."""
        give_up_at = time.monotonic() + _START_WITHIN
        for child in (self._mapper, self._node):
            if not child.running:
                child.start()
                child.wait_until_ready(give_up_at)

    def kill(self) -> None:
        """SIGKILL to the node, as a crash."""
        self._node.kill(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM to the node, as a restart by its operator: it writes what it has in memory, acknowledgements too."""
        self._node.kill(signal.SIGTERM)
        eventually(lambda: not self._node.running, within=_START_WITHIN)

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""
        self._node.kill(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        self._node.kill(signal.SIGCONT)

    def close(self) -> None:
        """End the node and its port mapper."""
        for child in (self._node, self._mapper):
            child.kill(signal.SIGKILL)
