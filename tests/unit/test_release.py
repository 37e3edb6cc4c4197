"""A release is made of a commit: what is refused, and what its files are called and made of."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

from deploy import release, release_check
from deploy.check.kit import Wrong
from deploy.release import NoRelease, context_paths, finish, names, notes, refuse_unless_ready, semantic
from palaver.version import __version__
from tests.pages import ROOT, files

CHANGELOG: Final = """# Changelog

## [1.2.0] - 2026-12-24

### Added

- [Snow](docs/snow.md).

## [1.1.0] - 2026-12-01

- Rain.
"""
DOCKERFILE: Final = (
    "FROM python AS build\nCOPY one.txt ./\nCOPY folder ./folder\nFROM python\nCOPY --from=build /x /x\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A commit that could be released as 1.2.0."""
    root = tmp_path / "tree"
    for name, text in {
        "CHANGELOG.md": CHANGELOG,
        "Dockerfile": DOCKERFILE,
        ".dockerignore": "*\n",
        "one.txt": "1",
        "folder/two.txt": "2",
        "folder/tests/three.txt": "3",
        "deploy/helm/palaver/Chart.yaml": "name: palaver\n",
        "other.txt": "of no use",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "--quiet")
    commit(root)
    return root


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "x", "--date", "2026-12-24T00:00:00Z")


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """What was built before the end."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for what in ("sdist", "wheel", "typescript", "sbom"):
        (folder / names("1.2.0")[what]).write_text(what)
    return folder


def test_a_commit_with_a_section_is_a_release(tree: Path) -> None:
    refuse_unless_ready(tree, "1.2.0")


@pytest.mark.parametrize("name", ["other.txt", "new.txt"])
def test_what_is_not_committed_is_refused(tree: Path, name: str) -> None:
    (tree / name).write_text("changed")
    with pytest.raises(NoRelease, match=rf"commit these, or take them away, first.*\n.*{name}"):
        refuse_unless_ready(tree, "1.2.0")


@pytest.mark.parametrize("version", ["1.2.0.dev1", "1.2.0+mine"])
def test_a_version_on_the_way_is_refused(tree: Path, version: str) -> None:
    with pytest.raises(NoRelease, match="is no version to release"):
        refuse_unless_ready(tree, version)


def test_a_version_of_which_the_changelog_says_nothing_is_refused(tree: Path) -> None:
    with pytest.raises(NoRelease, match=r"has no section `## \[1.3.0\] - YYYY-MM-DD`"):
        refuse_unless_ready(tree, "1.3.0")
    (tree / "CHANGELOG.md").write_text(CHANGELOG.replace("## [1.2.0]", "## [1.3.0] - 2026-12-31\n\n## [1.2.0]"))
    commit(tree)
    with pytest.raises(NoRelease, match=r"the section of 1.3.0 in CHANGELOG.md says nothing"):
        refuse_unless_ready(tree, "1.3.0")


def test_notes_are_the_section_without_links_into_the_repository(tree: Path) -> None:
    assert notes(tree, "1.2.0") == "# Palaver 1.2.0, 2026-12-24\n\n### Added\n\n- Snow.\n"
    assert notes(tree, "1.1.0") == "# Palaver 1.1.0, 2026-12-01\n\n- Rain.\n"


def test_the_end_of_a_release_is_the_same_each_time(tree: Path, dist: Path, tmp_path: Path) -> None:
    called = names("1.2.0")
    finish(tree, dist, "1.2.0")
    assert {path.name for path in dist.iterdir()} == {*called.values(), release.SUMS}
    first = (dist / release.SUMS).read_text()
    assert [line.split("  ")[1] for line in first.splitlines()] == sorted(called.values())
    with tarfile.open(dist / called["context"]) as context:
        assert sorted(context.getnames()) == [".dockerignore", "Dockerfile", "folder/two.txt", "one.txt"]
    with tarfile.open(dist / called["chart"]) as chart:
        assert chart.getnames() == ["palaver/Chart.yaml"]
    again = tmp_path / "again"
    subprocess.run(["git", "clone", "--quiet", str(tree), str(again)], check=True)
    finish(again, dist, "1.2.0")
    assert (dist / release.SUMS).read_text() == first


def test_a_file_that_is_missing_or_too_much_is_found(tree: Path, dist: Path) -> None:
    (dist / "palaver-1.1.0.tar.gz").touch()
    (dist / names("1.2.0")["wheel"]).unlink()
    with pytest.raises(NoRelease, match=r"lacks \['palaver-1.2.0-py3.*'palaver-1.1.0.tar.gz'\] is too much"):
        finish(tree, dist, "1.2.0")


@pytest.mark.parametrize(
    ("version", "written"), [("1.0.0rc1", "1.0.0-rc.1"), ("1.2.3", "1.2.3"), ("2.0.0a3", "2.0.0-a.3")]
)
def test_npm_and_helm_read_a_version(version: str, written: str) -> None:
    assert semantic(version) == written


def test_the_version_is_said_alike_everywhere() -> None:
    chart = (ROOT / "deploy/helm/palaver/Chart.yaml").read_text()
    assert f'version: {semantic(__version__)}\nappVersion: "{__version__}"\n' in chart
    package, lock = (
        json.loads((ROOT / "clients/typescript" / name).read_text()) for name in ("package.json", "package-lock.json")
    )
    assert {package["version"], lock["version"], lock["packages"][""]["version"]} == {semantic(__version__)}
    called = {
        name for page in files("*.md") for name in re.findall(r"palaver-\d[\w.]*?-py3-none-any\.whl", page.read_text())
    }
    assert called == {names()["wheel"]}


def test_the_changelog_has_a_section_of_this_version() -> None:
    assert notes().startswith(f"# Palaver {__version__}, ")


def test_an_image_is_built_of_what_its_recipe_copies() -> None:
    paths = context_paths((ROOT / "Dockerfile").read_text())
    assert {"constraints.txt", "palaver", "workers", "api", "features", "deploy/twin.py"} <= {*paths}
    assert all((ROOT / path).exists() for path in paths)


# What is wrong with the files of a release is found.


@pytest.fixture
def made(tree: Path, dist: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release, with files that are none."""
    finish(tree, dist, "1.2.0")
    monkeypatch.setattr(release_check, "names", lambda: names("1.2.0"))
    return dist


def test_sums_fit_until_a_file_changes(made: Path, tmp_path: Path) -> None:
    assert [*release_check.sums(made, tmp_path)] == []
    (made / "sbom.cdx.json").write_text("else")
    (made / "more.txt").touch()
    assert [*release_check.sums(made, tmp_path)] == [
        "more.txt: stands in SHA256SUMS or in dist/, and not in both",
        "more.txt: no file of this version",
        "sbom.cdx.json: is not what SHA256SUMS has",
    ]


def test_a_list_of_parts_that_lacks_one_is_found(made: Path, tmp_path: Path) -> None:
    parts = {"components": [], "metadata": {"component": {"name": "else"}}}
    (made / "sbom.cdx.json").write_text(json.dumps(parts))
    found = [*release_check.sbom(made, tmp_path)]
    assert any(line.startswith("sbom.cdx.json: does not name celery 5.") for line in found)
    assert found[-1] == "sbom.cdx.json: is not about palaver"


def test_a_context_without_a_file_that_is_copied_is_found(made: Path, tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(DOCKERFILE)
    (context / "one.txt").touch()
    with pytest.raises(Wrong, match="copies folder, which the context has not"):
        release_check.build(context, tmp_path)
