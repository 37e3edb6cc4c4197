"""What image and cluster take from a process: it is user 10001, and the root file system cannot be written to."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

USER: Final = 10001
_AS_USER: Final = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--pdeathsig=KILL", "--")
_NEEDED: Final = ("unshare", "mount", "setpriv")


class Confinement:
    """For processes that may write below `folder` only; needs root and Linux, and is loudly left out elsewhere."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o711)
        self.command: list[str] = []
        """What goes before a command to start it so."""
        if why := self._missing():
            print(f"ROLES ARE STARTED UNCONFINED, NOT AS USER {USER} ON A READ-ONLY ROOT: {why}", flush=True)
            return
        for confined in (_confined(folder, _AS_USER), _confined(folder, ())):
            if why := _refused(confined):
                print(f"ROLES ARE STARTED LESS CONFINED THAN IN THE IMAGE: {why}", flush=True)
            else:
                self.command = confined
                break

    def give(self, path: Path) -> None:
        """Let the processes write there."""
        if self.command:
            os.chown(path, USER, USER)

    def _missing(self) -> str | None:
        if sys.platform != "linux" or os.geteuid() != 0:
            return "this is not root on Linux"
        return next((f"there is no {each}" for each in _NEEDED if shutil.which(each) is None), None)


def _confined(folder: Path, user: tuple[str, ...]) -> list[str]:
    """In a mount namespace of its own."""
    own = shlex.quote(str(folder))
    mounts = ["umask 022", f"mount --bind {own} {own}"]
    if (closed := _closed_above(Path(sys.base_prefix))) is not None:
        # Root keeps its Python where no other user gets in: the way to it is open in the namespace, and to nothing
        # else.
        base, kept = shlex.quote(sys.base_prefix), shlex.quote(str(folder / "python"))
        mounts += [f"mkdir -p {kept}", f"mount --bind {base} {kept}", f"mount -t tmpfs -o mode=755 none {closed}"]
        mounts += [f"mkdir -p {base}", f"mount --bind {kept} {base}"]
    script = " && ".join([*mounts, "mount -o remount,bind,ro /", 'exec "$@"'])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *user]


def _closed_above(path: Path) -> Path | None:
    """The topmost folder on the way to `path` that others may not enter; None if there is none."""
    return next((each for each in reversed(path.parents) if not each.stat().st_mode & stat.S_IXOTH), None)


def _refused(confined: list[str]) -> str | None:
    """Why a program that is started so cannot become another one; None if it can, as `palaver` does."""
    become = 'exec "$0" -c "import palaver"'
    done = subprocess.run([*confined, "sh", "-c", become, sys.executable], capture_output=True, text=True, cwd="/")
    return (done.stderr.strip().splitlines() or ["it ends"])[-1] if done.returncode else None
