"""The image's recipe, the compose file and the units, each judged by its own program."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from palaver.config.roles import ROLES
from palaver.config.variables import PREFIX

from . import logins
from .kit import Kit, Manifest, Skipped, Wrong, documents, find, lines, run

_INSTALLED: Final = "/opt/palaver/bin/"
"""Where the units expect the command."""
_SOCKET: Final = "palaver-api.socket"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def dockerfile(kit: Kit) -> list[str]:
    """hadolint, and what it does not know: who the image runs as, and that the command picks the role."""
    faults: list[str] = []
    try:
        run("hadolint", "--no-color", str(kit.dockerfile))
    except Wrong as wrong:
        faults += lines(str(wrong))
    text = kit.dockerfile.read_text()
    wanted = {"USER 10001:10001": "run as user 10001", 'ENTRYPOINT ["palaver"]': "let the command pick the role"}
    faults += [f"Dockerfile: does not {what}: no line {line}" for line, what in wanted.items() if line not in text]
    if len(re.findall(r"^FROM ", text, re.MULTILINE)) < 2:
        faults.append("Dockerfile: what builds the image is left in it: one stage only")
    return faults


def compose(kit: Kit) -> list[str]:
    """Docker Compose reads it, and each role is as tight as in the cluster."""
    try:
        (stack,) = documents(run("docker-compose", "--file", str(kit.compose), "config", "--no-path-resolution"))
    except Wrong as wrong:
        return lines(str(wrong))
    services: dict[str, Manifest] = stack["services"]
    faults = [f"compose: no service {role}" for role in ROLES if role not in services]
    faults += _said_twice(kit)
    for name, service in services.items():
        if not service.get("read_only"):
            faults.append(f"compose: {name}: the root file system can be written to")
        if "healthcheck" not in service:
            faults.append(f"compose: {name}: no healthcheck")
        words = [*(service.get("entrypoint") or ["palaver"]), *(service.get("command") or [])]
        if not _is_replaced(words):
            faults.append(f"compose: {name}: its shell stays process 1, which no SIGTERM ends: end it with `exec …`")
        if name in ROLES:
            command = " ".join(words)
            if f"palaver {name}" not in command:
                faults.append(f"compose: {name}: runs {command!r}, not palaver {name}")
            drain = float(service["environment"].get("PALAVER_DRAIN_GRACE", 0))
            if _seconds(service.get("stop_grace_period", "10s")) < drain + 10 and name in ("worker", "tools"):
                faults.append(f"compose: {name}: is killed before its grace of {drain:g} s and ten more")
    for name, secret in stack["secrets"].items():
        if "file" not in secret:
            faults.append(f"compose: secret {name} is no file")
    return faults


def _is_replaced(words: list[str]) -> bool:
    """Whether a shell, if one is started, becomes the program at its end: not a part of a pipeline does."""
    if "-c" not in words:
        return True
    last = re.split(r"&&|;|\n", words[-1])[-1]
    return re.search(r"(^|\s)exec\s", last) is not None and "|" not in last


def _said_twice(kit: Kit) -> list[str]:
    """Options of Redis of which only the last counts."""
    options = [line.split()[0] for line in lines(kit.redis_conf.read_text()) if not line.startswith("#")]
    return [f"redis.conf: {option} stands there twice" for option in sorted({*options}) if options.count(option) > 1]


def units(kit: Kit) -> list[str]:
    """systemd reads them; what they start exists, and has time to drain."""
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for unit in kit.units:
            # The command is looked for where it is installed here.
            (Path(folder) / unit.name).write_text(unit.read_text().replace(_INSTALLED, f"{palaver_command().parent}/"))
        copies = [str(path) for path in sorted(Path(folder).iterdir())]
        for drop_in in kit.drop_ins:
            place = Path(folder) / drop_in.parent.name / drop_in.name
            place.parent.mkdir(exist_ok=True)
            place.write_text(drop_in.read_text())
        try:
            faults += lines(_verify(copies))
        except Wrong as wrong:
            faults += lines(str(wrong))
    faults = [fault.replace(f"{folder}/", "") for fault in faults]
    for role in ROLES:
        if not any(f"{_INSTALLED}palaver {role}" in unit.read_text() for unit in kit.units):
            faults.append(f"systemd: no unit starts palaver {role}")
        own = f"LoadCredential=redis-url:/etc/palaver/secrets/{logins.secret_of(logins.USERS[role])}\n"
        if not any(own in unit.read_text() for unit in kit.units if unit.name.startswith(f"palaver-{role}")):
            faults.append(f"systemd: {role} does not log in to Redis as {logins.USERS[role]}")
    texts = {unit.name: unit.read_text() for unit in kit.units}
    if f"\nRequires={_SOCKET}\n" not in texts.get("palaver-api.service", "") or _SOCKET not in texts:
        faults.append(f"palaver-api.service: without {_SOCKET} who connects while it is started again is refused")
    for where, text in texts.items():
        for name in re.findall(r"^Environment=(\w+)_FILE=", text, re.MULTILINE):
            if not name.startswith(PREFIX):
                faults.append(f"{where}: starts only where there is {name}: that belongs in a drop-in")
        drain = re.search(r"^Environment=PALAVER_DRAIN_GRACE=(\d+)$", text, re.MULTILINE)
        stop = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        if drain and (stop is None or int(stop[1]) < int(drain[1]) + 10):
            faults.append(f"{where}: is killed before its grace of {drain[1]} s and ten more: TimeoutStopSec")
    return faults


def _verify(paths: list[str]) -> str:
    """What systemd says of units; nothing if it likes them. It warns of a misspelt key, and exits with 0."""
    done = subprocess.run(
        [str(find("systemd-analyze")), "verify", "--man=no", *paths], capture_output=True, text=True, timeout=60
    )
    return done.stderr + done.stdout


def palaver_command() -> Path:
    """The installed command.

    Raises:
        Skipped: it is not installed.
    """
    here = Path(sys.executable).parent / "palaver"
    if not here.exists():
        raise Skipped("palaver is not installed here")
    return here


def _seconds(text: str) -> float:
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(r"([\d.]+)([smh])", text))
