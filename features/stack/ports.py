"""The ports of the stack's servers."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from palaver.config.roles import port_number

from .errors import StackError

HOST = "127.0.0.1"

EVERY_ADDRESS: Final = {"": HOST, "0.0.0.0": HOST, "::": "::1"}
"""Hosts at which a server listens everywhere, with where it is reached from its own machine."""

# Below every system's range for outgoing connections (Linux starts at 32768, macOS at 49152): a client that
# retries a port of that range while its server is down can be given the very port and connect to itself.
FREE_PORTS = range(20_000, 32_000)
VARIABLES = {
    "api": "PALAVER_API_PORT",
    "flower": "PALAVER_FLOWER_PORT",
    "redis": "PALAVER_REDIS_PORT",
    "fake_provider": "PALAVER_MODEL_PORT",
}


@dataclass(frozen=True)
class Ports:
    """The loopback port of each server; the defaults are those of `palaver up`."""

    api: int = 8080
    flower: int = 5555
    redis: int = 6390
    fake_provider: int = 9101

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Ports:
        """The ports of PALAVER_API_PORT and its like. Raises SystemExit, with a sentence, for a value that is none."""
        values = {name: (environment.get(variable), variable) for name, variable in VARIABLES.items()}
        return cls(**{name: port_number(text, variable) for name, (text, variable) in values.items() if text})

    @classmethod
    def free(cls) -> Ports:
        """Different ports that are free now."""
        ports: set[int] = set()
        while len(ports) < len(VARIABLES):
            ports.add(free_port())
        return cls(*ports)

    def require(self, name: str) -> None:
        """Raise StackError, naming the variable to set, when the port of `name`, if it has one, is taken."""
        port = asdict(self).get(name)
        if port is not None and not port_is_free(port):
            raise StackError(
                f"port {port} for {name} is in use: stop what listens there, or set {VARIABLES[name]} to another port"
            )


def asked_at(host: str) -> str:
    """The address, for a URL, at which this machine asks a server that listens at ``host``."""
    reached = EVERY_ADDRESS.get(host, host)
    return f"[{reached}]" if ":" in reached else reached


def port_is_free(port: int) -> bool:
    """Tell whether a server could listen on `port` of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(*, but: int | None = None) -> int:
    """A loopback port that is free, outside the range that outgoing connections are given; not ``but``, on which
    another program is about to.

    Raises OSError when a hundred tries find none.
    """
    for port in random.sample(FREE_PORTS, 100):
        if port != but and port_is_free(port):
            return port
    raise OSError(f"no free port found between {FREE_PORTS.start} and {FREE_PORTS.stop}")
