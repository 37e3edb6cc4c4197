"""The plan of the stack: the command, environment and log of each process, and the sign that it is ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from palaver.config.roles import ROLES
from palaver.config.secret_files import SUFFIX
from palaver.feature import features

from .child import ChildCommand
from .child_output import ChildOutput
from .errors import StackError
from .ports import HOST, Ports, asked_at
from .readiness import accepts, answers_ok

COMMANDS: Final[Mapping[str, Sequence[str]]] = {role: (sys.executable, "-m", "palaver.cli", role) for role in ROLES}
"""`palaver api`, `palaver worker`, …: what runs here is what runs on a server."""
_WORKERS: Final = ("worker", "tools")
_PROVIDERS: Final = '[providers.fake]\nbase_url = "http://{host}:{port}/v1"\n'
"""The fake provider, which needs no key."""


@dataclass(frozen=True)
class Plan:
    """`commands` has one for each kind of process; `environment` wins over what the plan sets itself, and what
    `environments` has for a kind over both. `fake_provider` is a command in the place of the feature's, which takes a
    host and a port. `host` is the address of the API; `output` says where a process by its name writes, in the place of
    a log. With `progress` workers touch files while they make some."""

    data_dir: Path
    ports: Ports
    commands: Mapping[str, Sequence[str]]
    environment: Mapping[str, str]
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fake_provider: Sequence[str] | None = None
    host: str = HOST
    output: Callable[[str], ChildOutput] | None = None
    progress: bool = False

    def child(self, name: str, number: int, redis_url: str) -> ChildCommand:
        """The `number`th process of `name`, a kind or `fake_provider`; not started yet. Raises StackError without the
        feature."""
        named = f"{name}-{number}"
        progress = self._progress_file(name, named)
        return ChildCommand(
            named,
            self._command(name),
            environment={
                **self._environment(redis_url),
                **self._metrics_port(name, number),
                **({"PALAVER_PROGRESS_FILE": str(progress)} if progress else {}),
                **self.environments.get(name, {}),
            },
            log_path=self.data_dir / "logs" / f"{named}.log",
            ready=self._readiness(name),
            output=self.output and self.output(named),
            progress=progress,
        )

    def _progress_file(self, name: str, named: str) -> Path | None:
        if not self.progress or name not in _WORKERS:
            return None
        folder = self.data_dir / "progress"
        folder.mkdir(exist_ok=True)
        return folder / named

    def _command(self, name: str) -> Sequence[str]:
        if name != "fake_provider":
            return self.commands[name]
        return [*(self.fake_provider or _provider()), "--host", HOST, "--port", str(self.ports.fake_provider)]

    def _readiness(self, name: str) -> Callable[[ChildCommand], bool]:
        if name == "api":
            return lambda child: answers_ok(f"http://{asked_at(self.host)}:{self.ports.api}/readyz")
        if name == "flower":
            return lambda child: answers_ok(f"http://{HOST}:{self.ports.flower}/healthcheck")
        if name == "fake_provider":
            return lambda child: accepts(self.ports.fake_provider)
        return lambda child: " ready." in child.output

    def _metrics_port(self, name: str, number: int) -> dict[str, str]:
        """Each worker on a machine needs one of its own: from this one on, first the model worker's."""
        port = self.environment.get("PALAVER_METRICS_PORT") or os.environ.get("PALAVER_METRICS_PORT") or ""
        if name not in _WORKERS or not port.isdecimal():
            return {}
        return {"PALAVER_METRICS_PORT": str(int(port) + 2 * (number - 1) + (name == "tools"))}

    def _environment(self, redis_url: str) -> dict[str, str]:
        own = {
            "PALAVER_REDIS_URL": redis_url,
            "PALAVER_DATA_DIR": str(self.data_dir),
            # Whatever this process inherited.
            "PALAVER_HOST": self.host,
            "PALAVER_API_PORT": str(self.ports.api),
            # Readiness is read from logs: they must not wait in a buffer.
            "PYTHONUNBUFFERED": "1",
        }
        if "PALAVER_PROVIDERS" not in self.environment:
            own["PALAVER_PROVIDERS"] = str(self._providers)
        if "flower" in self.commands:
            # Open: on the loopback address, for the user who started it.
            own |= {"PALAVER_FLOWER_PORT": str(self.ports.flower), "PALAVER_FLOWER_OPEN": "true"}
        if hosts := os.environ.get("PALAVER_ALLOWED_HOSTS"):
            own["PALAVER_ALLOWED_HOSTS"] = f"{hosts},{asked_at(self.host).strip('[]')}"
        variables = {**own, **self.environment}
        # A variable that is set here must not stand in a file as well.
        inherited = {name: value for name, value in os.environ.items() if name.removesuffix(SUFFIX) not in variables}
        return {**inherited, **variables}

    @cached_property
    def _providers(self) -> Path:
        path = self.data_dir / "providers.toml"
        path.write_text(_PROVIDERS.format(host=HOST, port=self.ports.fake_provider))
        return path


def _provider() -> Sequence[str]:
    """The command of the feature that plays the model: a process of its own, which this feature does not import."""
    if (feature := features().get("fake_provider")) is None:
        raise StackError("there is no feature fake_provider, which plays the model")
    return (sys.executable, "-m", feature.package)
