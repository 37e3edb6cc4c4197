"""Uses each file of a release from an empty place: ``make check-release``, once ``make release`` has made them.

``python -m deploy.release_check wheel chart`` uses only those. What cannot be used on this machine is said loudly.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.check.chart import charts
from deploy.check.files import dockerfile
from deploy.check.kit import Kit, Skipped, Wrong, made
from deploy.check.one_machine import served, volume
from deploy.lock import STACK, pins
from deploy.release import DIST, ROOT, SUMS, names, notes

_MODEL: Final = "palaver.features.fake_provider"
_EXTRAS: Final = "server,archive"
_PROGRAM: Final = ROOT / "tests" / "clients" / "program.ts"
_SAYS: Final = ['calls calculator {"expression":"1 + 1"}', "completed without an error", "1"]


def sums(dist: Path, _: Path) -> Iterator[str]:
    """Compare each file with its sum, and the list with the files."""
    lines = (line.partition("  ") for line in (dist / SUMS).read_text().splitlines())
    listed = {name: digest for digest, _, name in lines}
    found = {path.name for path in dist.iterdir()} - {SUMS}
    yield from (f"{name}: stands in {SUMS} or in dist/, and not in both" for name in sorted(found ^ {*listed}))
    yield from (f"{name}: no file of this version" for name in sorted(found ^ {*names().values()}))
    for name in sorted(found & {*listed}):
        if hashlib.sha256((dist / name).read_bytes()).hexdigest() != listed[name]:
            yield f"{name}: is not what {SUMS} has"


def sdist(dist: Path, folder: Path) -> Iterator[str]:
    """Build the wheel of it: it is the one beside it, byte for byte."""
    alone = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    run(sys.executable, "-m", "pip", "wheel", *alone, "--wheel-dir", folder, dist / names()["sdist"])
    yield from differences(dist / names()["wheel"], folder / names()["wheel"])


def differences(one: Path, other: Path) -> Iterator[str]:
    """Say in which files two wheels differ."""
    with zipfile.ZipFile(one) as left, zipfile.ZipFile(other) as right:
        here, there = ({each.filename: each.CRC for each in archive.infolist()} for archive in (left, right))
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            yield f"{one.name}: {name} is not the same in the wheel of the sdist"


def wheel(dist: Path, folder: Path) -> Iterator[str]:
    """Install it with all that it needs into an empty environment, and serve with it."""
    yield from served(folder, install(dist / names()["wheel"], folder / "environment", _EXTRAS), _MODEL)


def typescript(dist: Path, folder: Path) -> Iterator[str]:
    """Install it into an empty project, and run a program on it against the wheel of the same release."""
    if shutil.which("npm") is None:
        raise Skipped("there is no npm")
    project = folder / "project"
    project.mkdir()
    (project / "package.json").write_text('{"name": "empty", "type": "module", "private": true}')
    needed = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text())["devDependencies"]
    pinned = [f"{name}@{needed[name]}" for name in ("typescript", "@types/node")]
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--silent")
    run("npm", "install", *quiet, dist / names()["typescript"], *pinned, cwd=project)
    shutil.copy(_PROGRAM, project)
    strict = ("--strict", "--target", "es2022", "--module", "nodenext", "--types", "node")
    run("npx", "--no-install", "tsc", *strict, _PROGRAM.name, cwd=project)

    def visit(url: str, key: str) -> Iterator[str]:
        environment = {**os.environ, "PALAVER_URL": url, "PALAVER_API_KEY": key}
        said = run("node", _PROGRAM.with_suffix(".js").name, cwd=project, environment=environment).splitlines()
        if said != _SAYS:
            yield f"{names()['typescript']}: the program says {said}, not {_SAYS}"

    programs = install(dist / names()["wheel"], folder / "environment", _EXTRAS)
    yield from served(folder, programs, _MODEL, visit)


def image(dist: Path, folder: Path) -> Iterator[str]:
    """Do what its Dockerfile says, without Docker: build what the image has, and serve with it as the image does."""
    kit = Kit(folder / "context")
    _unpack(dist / names()["context"], kit.root)
    yield from dockerfile(kit)
    if fault := volume(kit):
        yield fault
    yield from served(folder, build(kit.root, folder), _MODEL)


def build(context: Path, folder: Path) -> Path:
    """Carry out the first stage of a Dockerfile in `folder`, with this Python; return where the programs are.

    Raises:
        Wrong: a step fails, or copies what the context has not.
    """
    stage = re.split(r"^FROM .*\n", (context / "Dockerfile").read_text(), flags=re.MULTILINE)[1]
    source, result = folder / "src", folder / "palaver"
    source.mkdir()
    steps = re.findall(r"^(COPY|RUN) (.*)$", stage.replace("\\\n", " "), re.MULTILINE)
    for kind, words in steps:
        if kind == "COPY":
            *copied, target = words.split()
            for path in copied:
                _copy(context / path, source / target, into=len(copied) > 1 or target.endswith("/"))
        else:
            path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
            command = words.replace("/opt/palaver", str(result))
            run("sh", "-ec", command, cwd=source, environment={**os.environ, "PATH": path})
    return result / "bin"


def _copy(path: Path, target: Path, *, into: bool) -> None:
    if path.is_dir():
        shutil.copytree(path, target)
    elif path.is_file():
        target = target / path.name if into or target.is_dir() else target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    else:
        raise Wrong(f"Dockerfile: copies {path.name}, which the context has not")


def chart(dist: Path, folder: Path) -> Iterator[str]:
    """Render it with each set of values, and judge that as Kubernetes would."""
    kit = Kit(folder)
    _unpack(dist / names()["chart"], kit.chart.parent)
    yield from charts(kit)


def sbom(dist: Path, _: Path) -> Iterator[str]:
    """Read it: it names Palaver, and each package that is locked for this machine, in its version."""
    parts = json.loads((dist / names()["sbom"]).read_text())
    listed = {(canonicalize_name(part["name"]), part["version"]) for part in parts["components"]}
    for line in pins(STACK.read_text()).values():
        locked = Requirement(line.partition("\\")[0])
        (number,) = locked.specifier
        if (locked.marker is None or locked.marker.evaluate()) and (locked.name, number.version) not in listed:
            yield f"{names()['sbom']}: does not name {locked.name} {number.version}"
    if parts["metadata"]["component"]["name"] != "palaver":
        yield f"{names()['sbom']}: is not about palaver"


def told(dist: Path, _: Path) -> Iterator[str]:
    """Read the notes: they are the changelog's section."""
    if (dist / names()["notes"]).read_text() != notes():
        yield f"{names()['notes']}: is not the section of the changelog"


CHECKS: Final[Mapping[str, Callable[[Path, Path], Iterator[str]]]] = {
    "sums": sums,
    "notes": told,
    "sbom": sbom,
    "sdist": sdist,
    "chart": chart,
    "wheel": wheel,
    "typescript": typescript,
    "image": image,
}


def install(wheel: Path, environment: Path, extras: str) -> Path:
    """Install a wheel into a new environment, with the versions that are tested together; return its programs."""
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    tested = environment / "constraints.txt"
    tested.write_text("".join(line.partition(" \\")[0] + "\n" for line in pins(STACK.read_text()).values()))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment / "bin" / "python")
    run(*pip, "install", "--quiet", "--constraint", tested, f"{wheel}[{extras}]")
    return environment / "bin"


def run(*command: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return what a command prints.

    Raises:
        Wrong: it fails; with what it says.
    """
    # As one who has no checkout.
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=outside if environment is None else environment,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    if done.returncode:
        raise Wrong(f"{command[0]}: {done.stdout}{done.stderr}")
    return done.stdout


def _unpack(tar: Path, folder: Path) -> None:
    with tarfile.open(tar) as packed:
        packed.extractall(folder, filter="data")


def main() -> None:
    """Use the files that the command line names, or all of them."""
    wanted = sys.argv[1:] or [*CHECKS]
    if unknown := [name for name in wanted if name not in CHECKS]:
        sys.exit(f"no such check: {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    if not (DIST / SUMS).exists():
        sys.exit("there is no release in dist/: make release")
    faulty = False
    for name in wanted:
        faulty |= not made(name, partial(_used, CHECKS[name]))
    sys.exit(faulty)


def _used(check: Callable[[Path, Path], Iterator[str]]) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="palaver-release-") as folder:
        return [*check(DIST, Path(folder))]


if __name__ == "__main__":
    main()
