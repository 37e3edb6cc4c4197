"""Redis servers that speak TLS: which of those that are here were built with it, and what they are told."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from features.stack.ports import free_port
from features.stack.redis_server import find_server
from tests.waiting import PATIENCE


class Tls(NamedTuple):
    """What servers that speak TLS are: a program that can, and a certificate that signed itself, beside its key."""

    program: Path
    certificate: Path

    def options(self, port: int) -> Mapping[str, str]:
        """Those of a server or Sentinel that speaks it on this port, and to the others."""
        return {
            "tls-port": str(port),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.certificate.with_name("key.pem")),
            "tls-ca-cert-file": str(self.certificate),
            "tls-auth-clients": "no",
            "tls-replication": "yes",
        }


def tls_of(certificate: Path) -> Tls:
    """Find a server with it: the one that tests bring may have none. Skips the test if there is no other."""
    named = os.environ.get("PALAVER_TEST_REDIS_SERVERS", "").split(":")
    for program in (str(find_server()), shutil.which("redis-server"), shutil.which("valkey-server"), *named):
        if program and _speaks_tls(Path(program)):
            return Tls(Path(program), certificate)
    pytest.skip("SENTINELS WITH TLS ARE NOT TESTED: no server here was built with it; apt-get install redis-server")


def _speaks_tls(program: Path) -> bool:
    """Tell whether a server was built with it: it misses a certificate before it misses anything else."""
    asked = [str(program), "--port", "0", "--tls-port", str(free_port())]
    with tempfile.TemporaryDirectory() as folder:
        answer = subprocess.run(asked, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    return "tls-cert-file" in answer.stdout
