"""Containers of the rendered chart as processes of this machine: same command, same environment, same probes.

Only what a cluster would bring is put in their place: values of secrets, free ports, folders for what is mounted, and
the image's own variables. Their confinement is that of the image, if this machine can.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import httpx

from features.stack.child import ChildCommand
from features.stack.errors import StackError
from features.stack.ports import HOST, free_port

from .confinement import Confinement
from .containers import Container
from .kit import Kit

_PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")
_IMAGE: Final = re.compile(r"^ENV (.*)$", re.MULTILINE)
_PORTS: Final = {"api": "PALAVER_API_PORT", "flower": "PALAVER_FLOWER_PORT"}


class Pod:
    """One of them, not started yet. `folder` has what is mounted; `secrets` are by the key of the Secret."""

    def __init__(
        self,
        kit: Kit,
        container: Container,
        folder: Path,
        secrets: Mapping[str, str],
        name: str,
        confinement: Confinement,
    ) -> None:
        self.container = container
        self.name = name
        self.port = free_port()
        self._kit = kit
        self._secrets = secrets
        self._folder = folder
        self._run = folder / f"run-{name}"
        self._run.mkdir()
        confinement.give(self._run)
        self._secret_files = folder / f"secrets-{name}"
        self._secret_files.mkdir()
        for key in container.secret_files.values():
            (self._secret_files / key).write_text(secrets[key])
        self._confinement = confinement.command
        self.child = ChildCommand(
            name,
            [*self._confinement, *self._local(container.command)],
            environment=self.environment,
            log_path=folder / f"{name}.log",
            ready=lambda child: self.probe("startupProbe") and self.probe("readinessProbe"),
        )

    @cached_property
    def environment(self) -> dict[str, str]:
        """All that the process gets: the image's variables, then the manifest's."""
        image = dict(re.findall(r"(\w+)=(\S+)", " ".join(_IMAGE.findall(self._kit.dockerfile.read_text()))))
        image["TMPDIR"] = str(self._run)
        image["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.defpath))
        values = {name: self._place(value) for name, value in self.container.values.items()}
        if variable := _PORTS.get(self.container.role):
            values[variable] = str(self.port)
        secret = {name: self._secrets[key] for name, key in self.container.secret_values.items()}
        named = [each["secretRef"]["name"] for each in self.container.spec.get("envFrom", [])]
        own = dict(self._secrets[name].split("=", 1) for name in named)
        return {**image, **values, **secret, **own}

    @property
    def url(self) -> str:
        """Where it listens, if it does."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Start it, and wait for nothing.

        Raises StackError if its startup probe succeeds before.
        """
        if self.probe("startupProbe"):
            raise StackError(f"{self.name}: its startupProbe succeeds before it is started")
        self.child.start()

    def wait_until_ready(self) -> None:
        """Return when its probes say that it is ready.

        Raises StackError if they do not within the time that its startup probe gives it, or it ends.
        """
        probe = self.container.spec["startupProbe"]
        patience = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
        self.child.wait_until_ready(time.monotonic() + patience)

    def probe(self, which: str) -> bool:
        """Whether a probe succeeds."""
        probe: dict[str, Any] = self.container.spec[which]
        if "exec" in probe:
            command = [*self._confinement, *self._local(probe["exec"]["command"])]
            return subprocess.run(command, env=self.environment, capture_output=True, timeout=10).returncode == 0
        asked = probe["httpGet"]
        port = self.container.ports.get(asked["port"], asked["port"])
        if port not in self.container.ports.values():
            return False
        try:
            return httpx.get(
                self.url + asked["path"], timeout=probe.get("timeoutSeconds", 1), trust_env=False
            ).is_success
        except httpx.HTTPError:
            return False

    def dead_probes(self) -> list[str]:
        """The probes that fail although it runs."""
        return [which for which in _PROBES if not self.probe(which)]

    def notices(self) -> bool:
        """Whether the liveness probe fails for a worker that has stood still for a minute, and only then."""
        self.child.kill(signal.SIGSTOP)
        for file in self._run.iterdir():
            os.utime(file, (time.time() - 60, time.time() - 60))
        failed = not self.probe("livenessProbe")
        self.child.kill(signal.SIGCONT)
        return failed and _within(30, lambda: self.probe("livenessProbe"))

    def end(self) -> float | None:
        """preStop and SIGTERM, as Kubernetes ends it; the seconds that it took, None if it had to be killed."""
        begun = time.monotonic()
        give_up_at = begun + self.container.grace
        if pre_stop := self.container.spec.get("lifecycle", {}).get("preStop"):
            subprocess.run(self._local(pre_stop["exec"]["command"]), check=True, timeout=self.container.grace)
        self.child.kill(signal.SIGTERM)
        ended = _within(give_up_at - time.monotonic(), lambda: not self.child.running)
        self.child.kill(signal.SIGKILL)
        return time.monotonic() - begun if ended else None

    def _local(self, words: Sequence[str]) -> list[str]:
        return [self._place(word) for word in words]

    def _place(self, text: str) -> str:
        if key := self.container.secret_files.get(text):
            return str(self._secret_files / key)
        return text.replace("/etc/palaver", str(self._folder)).replace("/run/palaver", str(self._run))


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    give_up_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.05)
    return True
