"""The data directory of a stack, which one stack has at a time."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from .errors import StackError, WrongSetting


class DataDir:
    """The folder, taken by a lock that ends with this process at the latest."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock: IO[str] | None = None

    def take(self) -> None:
        """Make it, for the user of this process alone. Raises StackError if another stack has it, WrongSetting if it
        cannot be written to."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Conversations and logs; also where an older version made the folder.
            self.path.chmod(0o700)
            self._lock = (self.path / "lock").open("w")
        except OSError as error:
            why = f"{error.strerror}: {error.filename}"
            raise WrongSetting(f"PALAVER_DATA_DIR: {self.path} cannot be written to ({why})") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StackError(
                f"another stack runs in {self.path}: stop it, or set PALAVER_DATA_DIR to another place"
            ) from error

    def write(self, name: str, *lines: str) -> None:
        """Write a file that no other user reads, in place of the one that there is."""
        path = self.path / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text("".join(f"{line}\n" for line in lines))

    def release(self) -> None:
        """Leave it to others."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
