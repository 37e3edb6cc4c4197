"""What is installed is what was locked: exact versions, each with hashes, and no older than pyproject.toml allows."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.lock import AGENT_SERVER, CLIENTS, DEPLOY, DEV, DOCS, PEERS, STACK, TOOLS, pins
from tests.pages import ROOT

FILES = [STACK, DEV, TOOLS, CLIENTS, DEPLOY, DOCS, AGENT_SERVER, *sorted(PEERS.glob("*.txt"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_LINE = re.compile(r"(#.*|[\w.-]+==[\w.+!]+( ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?)")


def locked(*paths: Path) -> dict[str, str]:
    """The version of each package."""
    text = "".join(path.read_text() for path in paths)
    return {name: re.split(r"[ \\;]", lines.partition("==")[2])[0] for name, lines in pins(text).items()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_version_has_hashes_and_no_line_says_anything_else(path: Path) -> None:
    text = path.read_text()
    assert all(_LINE.fullmatch(line) for line in text.splitlines())
    found = pins(text)
    assert len(found) > 10
    assert all(_HASH.search(lines) for lines in found.values())
    assert len(found) == sum("==" in line.partition(" ; ")[0] for line in text.splitlines())
    assert not re.search(r"https?:|index|\w\.(org|com|io|dev)\b", text), "where files come from is not written here"


@pytest.mark.parametrize(
    "text",
    [
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *[each for extra in PROJECT["project"]["optional-dependencies"].values() for each in extra],
    ],
)
def test_what_is_locked_is_allowed(text: str) -> None:
    needed = Requirement(text)
    if needed.name == PROJECT["project"]["name"]:
        return
    versions = locked(STACK, DEV)
    assert versions[canonicalize_name(needed.name)] in needed.specifier


def test_no_package_is_locked_twice() -> None:
    assert not locked(STACK).keys() & locked(DEV).keys()


@pytest.mark.parametrize("name", ["aiohttp", "celery", "httptools", "kombu", "orjson", "redis", "starlette", "tornado"])
def test_what_is_installed_is_what_is_locked(name: str) -> None:
    assert version(name) == locked(STACK)[name]


def test_installing_asks_for_hashes_and_builds_nothing_without() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installs = [line for line in makefile.splitlines() if "--requirement" in line]
    assert installs
    assert all("$(LOCKED)" in line for line in installs)
    assert "LOCKED := $(PIP_INSTALL) --require-hashes --only-binary :all:" in makefile
    assert "--no-deps --no-build-isolation --editable ." in makefile


@pytest.mark.chaos
def test_the_list_of_parts_names_all_that_is_locked(tmp_path: Path) -> None:
    """Installs twice, from a package index."""
    made = subprocess.run(["make", "sbom"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    parts = json.loads((ROOT / "dist" / "sbom.cdx.json").read_text())
    listed = {canonicalize_name(part["name"]): part["version"] for part in parts["components"]}
    elsewhere = {name for name, lines in pins(STACK.read_text()).items() if " ; " in lines}
    assert {name: number for name, number in locked(STACK).items() if name not in elsewhere}.items() <= listed.items()
    assert parts["metadata"]["component"]["name"] == "palaver"
