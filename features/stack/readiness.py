"""Checks that a server takes requests."""

from __future__ import annotations

import socket
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from .ports import HOST


def answers_ok(url: str) -> bool:
    """Tell whether a GET of `url` answers 200 within two seconds."""
    place = urlsplit(url)
    # Not httpx, which is a quarter of the memory of a process that waits for servers, and stays as long as these.
    connection = HTTPConnection(place.netloc, timeout=2.0)
    try:
        connection.request("GET", place.path or "/")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def accepts(port: int) -> bool:
    """Tell whether something listens on `port` of the loopback address."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True
