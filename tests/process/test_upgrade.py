"""From the wheel before to this one and back, role by role, while runs are under way: no run and no watcher notices.

The processes are those of installed wheels, as a deployment has them. Each role is replaced by itself, up and down,
while fifty runs are under way, with tools and approvals, and the stream of each is read.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chaos.seeds import seeded
from tests.chaos.traffic import Traffic
from tests.chaos.watchers import Watchers
from tests.checkers import violations
from tests.pages import ROOT
from tests.process import tools
from tests.process.cluster import Cluster
from tests.process.wheels import BEFORE, borrowing, has_history, wheel_of, wheel_of_commit
from tests.waiting import PATIENCE, eventually

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not has_history(), reason=f"THE UPGRADE IS NOT TESTED: git has no commit {BEFORE} here"),
]

UNDER_WAY: Final = 50
MODELS: Final = ("tool-3+use-each+rate-200", "steps-2-1-2+use-each+rate-200", "tool-2+use-each+say-30+rate-60")
AS_THE_PAGE_SAYS: Final = ("worker", "tools", "api")
ORDERS: Final = sorted(permutations(AS_THE_PAGE_SAYS), key=AS_THE_PAGE_SAYS.__ne__)


class Deployment:
    """Where each role finds its programs: a link that is changed, as to the folder of a version."""

    def __init__(self, folder: Path, versions: Mapping[str, Path]) -> None:
        self._folder = folder
        self._versions = versions
        self._place = folder / "place"
        self._place.mkdir()
        shutil.copy(tools.__file__, self._place / "in_both.py")
        (folder / "cluster").mkdir()
        for role in AS_THE_PAGE_SAYS:
            self._point(role, "before")
        self.cluster = Cluster(
            folder / "cluster",
            commands={role: self._command(role) for role in AS_THE_PAGE_SAYS},
            processes={},
            environment={"PALAVER_TOOLS": "in_both"},
        )

    def _link(self, role: str) -> Path:
        return self._folder / f"{role}-programs"

    def _point(self, role: str, version: str) -> None:
        self._link(role).unlink(missing_ok=True)
        self._link(role).symlink_to(self._versions[version])

    def _command(self, role: str) -> Sequence[str]:
        # Elsewhere than in the checkout, which a program would import from.
        return ("sh", "-c", f'cd {self._place} && exec "$(readlink {self._link(role)})/palaver" {role}')

    def replace(self, role: str, version: str) -> None:
        """Replace the one process of a role: a worker beside the old one; an API, whose port is taken, after it."""
        (old,) = [child for child in self.cluster.children(role) if child.running]
        self._point(role, version)
        if role == "api":
            old.terminate()
            eventually(lambda: not old.running)
        self.cluster.start(role)
        if role != "api":
            old.terminate()
            eventually(lambda: not old.running)
            assert old.exit_code == 0, old.output[-2000:]
        assert self.versions[role] == version

    @property
    def versions(self) -> dict[str, str]:
        """The version that the one process of each role is of, as its command line has it."""
        found = {}
        for role in AS_THE_PAGE_SAYS:
            (pid,) = self.cluster.stack.pids(role)
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            (found[role],) = [name for name, place in self._versions.items() if words[0].startswith(f"{place}/")]
        return found


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The version before, at work."""
    folder = tmp_path_factory.mktemp("upgrade")
    before, now = folder / "before", folder / "now"
    for place in (before, now):
        place.mkdir()
    versions = {
        "before": borrowing(wheel_of_commit(BEFORE, before), before / "environment"),
        "now": borrowing(wheel_of(ROOT, now), now / "environment"),
    }
    made = Deployment(folder, versions)
    with made.cluster:
        yield made


@pytest.mark.chaos
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_fifty_runs_outlive_an_upgrade_and_the_way_back(
    deployment: Deployment, order: Sequence[str], tmp_path: Path
) -> None:
    cluster, (seed, chance) = deployment.cluster, seeded()
    cluster.mark()

    def body() -> dict[str, Any]:
        return cluster.body(chance.choice(MODELS), tools=["calculator", "record", "record_idempotent", "send"])

    ledger = tmp_path / "watchers.jsonl"
    traffic = Traffic(cluster, chance, cluster.http, aimed=False)
    with Watchers(cluster.stack.url, ledger, random.Random(seed)).open() as watchers:
        assert {*deployment.versions.values()} == {"before"}
        for version in ("now", "before"):
            for role in order:
                traffic.top_up(UNDER_WAY, body)
                traffic.approve_all()
                for run_id in cluster.submitted:
                    watchers.follow(run_id)
                deployment.replace(role, version)
            assert {*deployment.versions.values()} == {version}
        evidence = traffic.conclude(f"an upgrade, {'-'.join(order)}", seed=seed, made={"replaced": 2 * len(order)})
        seen = watchers.seen(PATIENCE)
    assert len({line["run"] for line in seen}) >= UNDER_WAY
    found = violations(replace(evidence, watched=seen))
    assert not found, "\n".join(map(str, found))
