"""`palaver serve` as the image starts it: a user of its own, nothing to write to but the data directory and /tmp."""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from features.stack.child import ChildCommand
from features.stack.errors import StackError
from features.stack.ports import HOST, Ports
from features.stack.readiness import accepts
from palaver import ClientError, Palaver

from .confinement import Confinement
from .kit import Kit

_WITHIN: Final = 120.0
_DATA: Final = "PALAVER_DATA_DIR"
_FOLDER: Final = re.compile(
    r"^ && install --directory --owner 10001 --group 10001 (?:--mode 700 )?(/\S+)", re.MULTILINE
)


def serve(kit: Kit) -> list[str]:
    """Start it twice on one volume: the second one has what the first one did, and both end when they are told to."""
    if fault := volume(kit):
        return [fault]
    with tempfile.TemporaryDirectory(prefix="palaver-check-") as folder:
        return [*served(Path(folder), Path(sys.executable).parent, "features.fake_provider")]


def volume(kit: Kit) -> str | None:
    """Say what is wrong with the place of its data in the image; None if nothing is."""
    text = kit.dockerfile.read_text()
    data = re.search(rf"^ENV {_DATA}=(\S+)$", text, re.MULTILINE)
    if data is None:
        return f"Dockerfile: no line ENV {_DATA}=…, where palaver serve keeps its data"
    if data[1] not in _FOLDER.findall(text):
        return f"Dockerfile: {data[1]} is not made for user 10001: a new volume there could not be written to"
    return None


def nothing_else(_url: str, _key: str) -> Iterator[str]:
    """Visit the API for nothing."""
    return iter(())


def served(
    folder: Path, programs: Path, model: str, visit: Callable[[str, str], Iterator[str]] = nothing_else
) -> Iterator[str]:
    """Start what is installed where `programs` are, twice on one volume in `folder`, and say what is wrong with it.

    `model` is the module that plays the model; `visit` is given the API's URL and a key while it serves.
    """
    confinement, ports, key = Confinement(folder), Ports.free(), secrets.token_hex(16)
    url = f"http://{HOST}:{ports.api}"
    for name in ("data", "tmp"):
        (folder / name).mkdir()
        confinement.give(folder / name)
    model_url = f"http://{HOST}:{ports.fake_provider}/v1"
    (folder / "providers.toml").write_text(f'[providers.fake]\nbase_url = "{model_url}"\n')
    environment = {
        "PATH": os.pathsep.join((str(programs), os.defpath)),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PALAVER_HOST": "127.0.0.1",
        "PALAVER_API_PORT": str(ports.api),
        "PALAVER_REDIS_PORT": str(ports.redis),
        "PALAVER_PROVIDERS": str(folder / "providers.toml"),
        "PALAVER_API_KEYS": f"people={key}",
        _DATA: str(folder / "data"),
    }
    words = [str(programs / "python"), "-m", model, "--host", HOST, "--port", str(ports.fake_provider)]
    # What stands where a program is started is imported before what is installed: not the checkout.
    there = ("sh", "-c", 'cd "$0" && exec "$@"', str(folder))
    provider = _child("model", [*there, *words], dict(os.environ), folder)
    first, second = (
        _child(f"serve-{number}", [*confinement.command, *there, "palaver", "serve"], environment, folder)
        for number in ("1", "2")
    )
    try:
        provider.start()
        first.start()
        with Palaver(url, key, timeout=_WITHIN) as client:
            first.wait_until_ready(time.monotonic() + _WITHIN)
            run = client.run("hello", model="fake/tool-1", tools=["calculator"])
            if run.status != "completed":
                yield f"serve: its first run is {run.status}: {run.error}"
            yield from visit(url, key)
            yield from _ended(first)
            second.start()
            second.wait_until_ready(time.monotonic() + _WITHIN)
            if client.get(run.id).output != run.output:
                yield "serve: what it did is not there after a restart"
            yield from _ended(second)
    except (StackError, ClientError) as error:
        yield from str(error).splitlines()
    finally:
        for child in (first, second, provider):
            child.kill(signal.SIGKILL)


def _child(name: str, words: list[str], environment: dict[str, str], folder: Path) -> ChildCommand:
    port = words[-1]

    def ready(child: ChildCommand) -> bool:
        return "serving at" in child.output if name != "model" else accepts(int(port))

    return ChildCommand(name, words, environment=environment, log_path=folder / f"{name}.log", ready=ready)


def _ended(child: ChildCommand) -> Iterator[str]:
    child.kill(signal.SIGTERM)
    child.reap(time.monotonic() + _WITHIN)
    if child.exit_code != 0:
        tail = "\n".join(child.output.splitlines()[-20:])
        yield f"{child.name}: ends with {child.exit_code} when told to; the end of its log:\n{tail}"
