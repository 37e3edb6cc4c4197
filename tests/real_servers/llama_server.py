"""llama.cpp's own HTTP server, as the wheel ``xllamacpp`` brings it, with a model.

    python llama_server.py FILE PORT

A program for the environment of the servers.
"""

from __future__ import annotations

import signal
import sys

import xllamacpp

SLOTS = 4
WINDOW = 200_000
"""Tokens of a slot: more than it says in a minute."""


def serve(path: str, port: int) -> None:
    """Until a signal ends the process."""
    asked = xllamacpp.CommonParams()
    asked.model.path = path
    asked.hostnames = ["127.0.0.1"]
    asked.port = port
    asked.n_parallel = SLOTS
    asked.n_ctx = SLOTS * WINDOW
    asked.cpuparams.n_threads = 1
    asked.use_jinja = True
    asked.endpoint_slots = True
    server = xllamacpp.Server(asked)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
