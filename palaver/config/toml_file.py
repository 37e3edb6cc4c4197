"""The TOML files that settings point at.

A key that is unknown is left out with a warning: while a deployment rolls, a file may be newer than a process. In a
file of rules it is an error: what a rule says must not be left out.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from palaver.config.text_files import read_text_file
from palaver.errors import ConfigurationError
from palaver.vocabulary.names import did_you_mean

log = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)


def read_toml(path: Path, variable: str) -> dict[str, Any]:
    """Read the file's tables.

    Raises:
        ConfigurationError: when it cannot be read; names the environment variable that points at it.
    """
    try:
        return tomllib.loads(read_text_file(path))
    except OSError as error:
        raise ConfigurationError(f"{variable}: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{variable}: {path} is not TOML: {error}") from None


def read_model(model: type[M], path: Path, variable: str) -> M:
    """Read the file as a ``model``, which forbids extra fields: those are left out with a warning.

    Raises:
        ConfigurationError: when it cannot be read, or a value does not fit; says which, and what would fit.
    """
    tables = read_toml(path, variable)
    for place in _unknown(model, tables):
        inner: Any = tables
        for part in place[:-1]:
            inner = inner[part]
        del inner[place[-1]]
        warn_of_unknown(".".join(map(str, place)), _names_beside(model, place), path, variable)
    try:
        return model.model_validate(tables)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors())
        raise ConfigurationError(f"{variable}: {path}: {wrong}") from None


def read_strictly(model: type[M], path: Path, variable: str) -> M:
    """Read the file as a ``model``: unlike with `read_model`, a key that is unknown is an error.

    Raises:
        ConfigurationError: when it cannot be read, or something in it does not fit; says where, and what would fit.
    """
    tables = read_toml(path, variable)
    try:
        return model.model_validate_json(to_json(tables))
    except ValidationError as error:
        wrong = "; ".join(_in_words(model, details) for details in error.errors(include_url=False))
        raise ConfigurationError(f"{variable}: {path}: {wrong}") from None


def _in_words(model: type[BaseModel], details: Any) -> str:
    place = [part for part in details["loc"] if not _is_branch(part)]
    message = details["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if details["type"] == "extra_forbidden":
        message = f"is no key here{did_you_mean(str(place[-1]), _names_beside(model, tuple(place)))}"
    return f"{'.'.join(map(str, place))}: {message}"


def _is_branch(part: object) -> bool:
    """Tell whether a part of a place is the name that pydantic has for a branch of a union."""
    return isinstance(part, str) and ("[" in part or part.startswith("constrained-"))


def warn_of_unknown(place: str, names: Iterable[str], path: Path, variable: str) -> None:
    """Say that the key at ``place`` is left out, and which of the ``names`` that are known there it may have been."""
    hint = did_you_mean(place.rpartition(".")[2], names)
    log.warning("%s: %s: %s is no key that this version knows, and is left out%s", variable, path, place, hint)


def _unknown(model: type[BaseModel], tables: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    try:
        model.model_validate(tables)
    except ValidationError as error:
        return [detail["loc"] for detail in error.errors() if detail["type"] == "extra_forbidden"]
    return []


def _names_beside(model: type[BaseModel], place: tuple[Any, ...]) -> Iterable[str]:
    """Return the keys that may stand beside the one at ``place``, which is a chain of models, each perhaps optional,
    and of mappings to models."""
    kind: Any = model
    for part in place[:-1]:
        kind = kind.model_fields[part].annotation if hasattr(kind, "model_fields") else get_args(kind)[1]
        if get_origin(kind) is UnionType:
            kind = next((option for option in get_args(kind) if hasattr(option, "model_fields")), kind)
    fields: Mapping[str, Any] = kind.model_fields
    return fields
