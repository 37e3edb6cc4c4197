"""Model providers: who can be asked, where, with which key. Read from the TOML file ``PALAVER_PROVIDERS``.

    [providers.fake]
    base_url = "http://127.0.0.1:9101/v1"
    api_key_env = "FAKE_API_KEY"        # the name of an environment variable, never the key itself
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from palaver.errors import ConfigurationError


class Timeouts(BaseModel):
    """How long a model call may take, in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connect: float = Field(default=10.0, gt=0)
    first_token: float = Field(default=120.0, gt=0)
    """From the request to the first byte of the answer's body."""
    idle: float = Field(default=60.0, gt=0)
    """Between two bytes of a stream."""
    total: float = Field(default=600.0, gt=0)


class Provider(BaseModel):
    """An OpenAI-compatible endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$")]
    api_key_env: str | None = None
    timeouts: Timeouts = Timeouts()
    max_response_bytes: int = Field(default=16 << 20, ge=1024)
    """An answer, streamed or not, is refused beyond this."""

    @property
    def api_key(self) -> str | None:
        """The key, from the environment.

        Raises:
            ConfigurationError: when the variable that ``api_key_env`` names is not set.
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env)
        if not key:
            raise ConfigurationError(f"the environment variable {self.api_key_env} (api_key_env of a provider) is not set")
        return key


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    providers: dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")], Provider]


def load_providers(path: Path | None) -> Mapping[str, Provider]:
    """The providers of the file; none when there is no file.

    Raises:
        ConfigurationError: when it cannot be read or an entry does not fit; says where.
    """
    if path is None:
        return {}
    try:
        return _File.model_validate(tomllib.loads(path.read_text())).providers
    except OSError as error:
        raise ConfigurationError(f"PALAVER_PROVIDERS: cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"PALAVER_PROVIDERS: {path} is not TOML: {error}") from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigurationError(f"PALAVER_PROVIDERS: {path}: {wrong}") from None
