"""The environment of a stack: where it is, what it uses that is there, and what features have beside it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from palaver.config.secret_files import secret_of
from palaver.feature import Beside, features

from .ports import Ports

DATA_DIR: Final = ".palaver"
"""The data directory unless PALAVER_DATA_DIR says: below where the command is typed."""


@dataclass(frozen=True)
class Surroundings:
    """``variables`` are for every process."""

    data_dir: Path
    ports: Ports
    redis_url: str | None
    variables: Mapping[str, str]

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Surroundings:
        """Read them. Raises SystemExit, with a sentence, for a port that is none, and ConfigurationError if the file
        that has the address of the Redis cannot be read."""
        providers = environment.get("PALAVER_PROVIDERS")
        return cls(
            data_dir_of(environment),
            Ports.from_environment(environment),
            secret_of("PALAVER_REDIS_URL", environment),
            {"PALAVER_PROVIDERS": str(Path(providers).resolve())} if providers else {},
        )


def data_dir_of(environment: Mapping[str, str]) -> Path:
    """Return the data directory."""
    return Path(environment.get("PALAVER_DATA_DIR") or DATA_DIR).resolve()


def bring(environment: MutableMapping[str, str]) -> Sequence[str]:
    """Put into an environment what features have beside a stack; return what they say of it.

    Before the process becomes the one that the stack is below: they are not loaded there.
    """
    lines = []
    for feature in features().values():
        if feature.beside:
            found: Beside = feature.load(feature.beside)(data_dir_of(environment), environment)
            environment.update(found.variables)
            lines.append(found.line)
    return lines
