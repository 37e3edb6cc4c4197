"""What a release is made of: ``make release`` calls the two ends of this, and builds in between.

    python -m deploy.release check    refuse a tree that is no release: changes, a version without its section
    python -m deploy.release finish   add the image's context, the chart, the notes and the sums to dist/

All files come from the commit, and wheel, sdist, context and chart are the same, byte for byte, each time.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

from packaging.version import Version

from palaver.version import __version__

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
SUMS: Final = "SHA256SUMS"
SBOM: Final = "sbom.cdx.json"
NOTES: Final = "release-notes.md"
CHART: Final = "deploy/helm/palaver"
_COPIED: Final = re.compile(r"^COPY (?!--)(.+) \S+$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)[^)]+\)")
"""One into the repository: notes are read elsewhere."""


class NoRelease(Exception):
    """The tree is no release; says why, and what to do."""


def semantic(version: str) -> str:
    """Return a version of Python's as SemVer writes it, for npm and helm: 1.0.0rc1 is 1.0.0-rc.1."""
    parsed = Version(version)
    return parsed.base_version + (f"-{parsed.pre[0]}.{parsed.pre[1]}" if parsed.pre else "")


def names(version: str = __version__) -> dict[str, str]:
    """Return the names of the files of a release, by what they are."""
    return {
        "sdist": f"palaver-{version}.tar.gz",
        "wheel": f"palaver-{version}-py3-none-any.whl",
        "context": f"palaver-image-{version}.tar.gz",
        "chart": f"palaver-chart-{semantic(version)}.tgz",
        "typescript": f"palaver-client-{semantic(version)}.tgz",
        "sbom": SBOM,
        "notes": NOTES,
    }


def refuse_unless_ready(root: Path = ROOT, version: str = __version__) -> None:
    """Return if the tree is that of a release.

    Raises:
        NoRelease: something is not committed, the version is a dev one, or the changelog has no section of it.
    """
    if changed := _git(root, "status", "--porcelain").decode().strip():
        raise NoRelease(f"commit these, or take them away, first: a release is made of a commit.\n{changed}")
    if Version(version).is_devrelease or Version(version).local:
        raise NoRelease(f"{version} is no version to release: say another one in palaver/version.py")
    notes(root, version)


def notes(root: Path = ROOT, version: str = __version__) -> str:
    """Return the section of a version in the changelog, below a title of its own.

    Raises:
        NoRelease: there is none, or it says nothing.
    """
    changelog = (root / "CHANGELOG.md").read_text()
    begin = rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)\n(.*?)(?=^## |\Z)"
    section = re.search(begin, changelog, re.MULTILINE | re.DOTALL)
    if section is None:
        raise NoRelease(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`: write what is new in it")
    if not section[2].strip():
        raise NoRelease(f"the section of {version} in CHANGELOG.md says nothing")
    said = _LINK.sub(r"\1", section[2].strip())
    return f"# Palaver {version}, {section[1]}\n\n{said}\n"


def finish(root: Path = ROOT, dist: Path = DIST, version: str = __version__) -> None:
    """Put into `dist` what is made of the commit alone, and the sums of everything there.

    Raises:
        NoRelease: a file of the release has not been built, or there is one too many.
    """
    called = names(version)
    context = context_paths((root / "Dockerfile").read_text())
    _archive(root, dist / called["context"], *context, ":!*/tests/*")
    _archive(root, dist / called["chart"], CHART, above=CHART.removesuffix("palaver"))
    (dist / NOTES).write_text(notes(root, version))
    found = {path.name for path in dist.iterdir()} - {SUMS}
    if found != {*called.values()}:
        missing, unknown = {*called.values()} - found, found - {*called.values()}
        raise NoRelease(f"dist/ is not a release: it lacks {sorted(missing)}, and {sorted(unknown)} is too much")
    lines = [f"{hashlib.sha256((dist / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(found)]
    (dist / SUMS).write_text("".join(lines))


def context_paths(dockerfile: str) -> list[str]:
    """Return what an image is built of: the file itself, and all that it copies from its context."""
    copied = [path for words in _COPIED.findall(dockerfile) for path in words.split()]
    return ["Dockerfile", ".dockerignore", *copied]


def _archive(root: Path, place: Path, *paths: str, above: str = "") -> None:
    """Write a tar of what the commit has at these paths, with its time; names begin below the folder `above`."""
    packed = BytesIO()
    with (
        tarfile.open(fileobj=BytesIO(_git(root, "-c", "tar.umask=0022", "archive", "HEAD", "--", *paths))) as found,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for member in found:
            if member.name.startswith(above) and (member.isfile() or member.issym()):
                content = found.extractfile(member) if member.isfile() else None
                member.name = member.name.removeprefix(above)
                tar.addfile(member, content)
    place.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def _git(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    if done.returncode != 0:
        raise NoRelease(f"git {words[0]}: {done.stderr.decode().strip()}")
    return done.stdout


def main() -> None:
    """Do what the command line says."""
    try:
        match sys.argv[1:]:
            case ["check"]:
                refuse_unless_ready()
            case ["finish"]:
                finish()
            case _:
                sys.exit("usage: python -m deploy.release check | finish")
    except NoRelease as why:
        sys.exit(f"no release: {why}")


if __name__ == "__main__":
    main()
