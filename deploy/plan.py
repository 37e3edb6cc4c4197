"""How each process of the dev stack is started: command, environment, log, and the sign that it is ready."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.child import ROOT, Child
from deploy.ports import Ports
from deploy.readiness import accepts, answers_ok
from palaver.testing.ports import HOST

DEV_PROVIDERS = ROOT / "deploy" / "providers.dev.toml"

_PROCFILE_LINE = re.compile(r"^([A-Za-z0-9_-]+):[ \t]*(\S.*)$", re.MULTILINE)


def read_procfile(path: Path) -> dict[str, str]:
    """The command line of each process, in the order of the file."""
    return dict(_PROCFILE_LINE.findall(path.read_text()))


@dataclass(frozen=True)
class Plan:
    """`lines` are those of the Procfile; `environment` wins over what the plan sets itself, and what `environments` has
    for a line over both."""

    data_dir: Path
    ports: Ports
    lines: Mapping[str, str]
    environment: Mapping[str, str]
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def ledger_path(self) -> Path:
        """The file in which the model server counts its requests."""
        return self.data_dir / "model-ledger.jsonl"

    def child(self, name: str, number: int, redis_url: str) -> Child:
        """The `number`th process of `name`, a line of the Procfile or `model_server`; not started yet."""
        return Child(
            f"{name}-{number}",
            self._command(name),
            environment={**self._environment(redis_url), **self.environments.get(name, {})},
            log_path=self.data_dir / "logs" / f"{name}-{number}.log",
            ready=self._readiness(name),
        )

    def _command(self, name: str) -> Sequence[str]:
        if name != "model_server":
            return ["/bin/sh", "-c", f"exec {self.lines[name]}"]
        where = ["--host", HOST, "--port", str(self.ports.model_server), "--ledger", str(self.ledger_path)]
        return [sys.executable, "-m", "palaver.testing.model_server", *where]

    def _readiness(self, name: str) -> Callable[[Child], bool]:
        if name == "api":
            return lambda child: answers_ok(f"http://{HOST}:{self.ports.api}/readyz")
        if name == "flower":
            return lambda child: answers_ok(f"http://{HOST}:{self.ports.flower}/healthcheck")
        if name == "model_server":
            return lambda child: accepts(self.ports.model_server)
        return lambda child: " ready." in child.output

    def _environment(self, redis_url: str) -> dict[str, str]:
        own = {
            "PALAVER_REDIS_URL": redis_url,
            "PALAVER_PROVIDERS": str(self._providers()),
            "PALAVER_DATA_DIR": str(self.data_dir),
            "PALAVER_API_PORT": str(self.ports.api),
            "PALAVER_FLOWER_PORT": str(self.ports.flower),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
            # Readiness is read from logs: they must not wait in a buffer.
            "PYTHONUNBUFFERED": "1",
        }
        return {**os.environ, **own, **self.environment}

    def _providers(self) -> Path:
        default = Ports().model_server
        if self.ports.model_server == default:
            return DEV_PROVIDERS
        path = self.data_dir / "providers.toml"
        path.write_text(DEV_PROVIDERS.read_text().replace(f":{default}/", f":{self.ports.model_server}/"))
        return path
