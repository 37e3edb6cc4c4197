"""Loopback ports for servers that tests and the stack start."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"

# Below every system's range for outgoing connections (Linux starts at 32768, macOS at 49152): a client that
# retries a port of that range while its server is down can be given the very port and connect to itself.
FREE_PORTS = range(20_000, 32_000)


def port_is_free(port: int) -> bool:
    """Whether a server could listen on `port` of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A loopback port nobody listens on, outside the range that outgoing connections are given.

    Raises OSError when a hundred tries find none.
    """
    for port in random.sample(FREE_PORTS, 100):
        if port_is_free(port):
            return port
    raise OSError(f"no free port found between {FREE_PORTS.start} and {FREE_PORTS.stop}")
