"""Sockets that are handed over: which are taken, and what is said of the others."""

from __future__ import annotations

import os
import socket

import pytest

from api.edge.listening import handed_over
from palaver.errors import ConfigurationError


def hand_over(monkeypatch: pytest.MonkeyPatch, given: int, count: str) -> None:
    monkeypatch.setattr("api.edge.listening._FIRST", given)
    monkeypatch.setenv("LISTEN_FDS", count)
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))


def test_a_socket_that_listens_is_taken_once_and_children_do_not_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        hand_over(monkeypatch, os.dup(given.fileno()), "1")
        (taken,) = handed_over()
        with taken:
            assert taken.getsockname() == given.getsockname()
            assert taken.proto == socket.IPPROTO_TCP, "or asyncio leaves Nagle's algorithm on"
            assert not taken.get_inheritable()
        assert not {"LISTEN_FDS", "LISTEN_PID"} & os.environ.keys()
        assert handed_over() == []


def test_what_is_for_another_process_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", str(os.getppid()))
    assert handed_over() == []


@pytest.mark.parametrize(
    ("family", "kind", "said"),
    [
        (socket.AF_INET, socket.SOCK_DGRAM, "no TCP socket that listens: say ListenStream="),
        (socket.AF_INET, socket.SOCK_STREAM, "no Accept=yes"),
        (socket.AF_UNIX, socket.SOCK_STREAM, "no TCP socket"),
    ],
)
def test_what_cannot_be_served_is_said(
    monkeypatch: pytest.MonkeyPatch, family: socket.AddressFamily, kind: socket.SocketKind, said: str
) -> None:
    hand_over(monkeypatch, socket.socket(family, kind).detach(), "1")
    with pytest.raises(ConfigurationError, match=said):
        handed_over()


def test_what_is_no_socket_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as file:
        hand_over(monkeypatch, file.fileno(), "1")
        with pytest.raises(ConfigurationError, match="no TCP socket"):
            handed_over()


def test_a_count_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over(monkeypatch, 3, "many")
    with pytest.raises(ConfigurationError, match="LISTEN_FDS: 'many' is no number of sockets"):
        handed_over()
