"""Every variable that the kit sets is one that is read, fits, and has no secret as its value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from opentelemetry.sdk import environment_variables
from pydantic import ValidationError

from palaver.config.secret_files import SUFFIX
from palaver.config.settings import SECRET, Settings
from palaver.config.variables import PREFIX, variables
from palaver.telemetry.traces import HEADERS

from .containers import containers_of
from .kit import Kit, documents, run

_SECRET: Final = ("FLOWER_BASIC_AUTH", *HEADERS, *(PREFIX + name.upper() for name in SECRET))
_OTHERS: Final = frozenset({"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "SSL_CERT_FILE"})
_TRACING: Final = re.compile(r"OTEL_(EXPORTER_OTLP_(TRACES_)?[A-Z]+|TRACES_[A-Z_]+|SERVICE_NAME|RESOURCE_ATTRIBUTES)")
"""Of OpenTelemetry's variables, those of traces."""
_KEY: Final = re.compile(r'^api_key_env = "(\w+)"$', re.MULTILINE)
_LINE: Final = re.compile(r"^Environment=(\w+)=(.*)$", re.MULTILINE)
_INSTANCE: Final = "1"
"""What stands for the name of a unit's instance."""
_IMAGE: Final = re.compile(r"(\w+)=(\S+)")


class Variable(NamedTuple):
    """A variable that a part of the kit sets; no value: it comes from a secret."""

    where: str
    name: str
    value: str | None


def names(kit: Kit) -> list[str]:
    """What is wrong with the environments of the image, the units, the compose file and the chart."""
    faults: list[str] = []
    keys = _provider_keys(kit)
    for variable in dict.fromkeys(_variables(kit)):
        faults += _wrong(variable, keys)
    return faults


def _wrong(variable: Variable, keys: frozenset[str]) -> Iterator[str]:
    where, name, value = variable
    plain = name.removesuffix(SUFFIX)
    if (name in _SECRET or name in keys) and value is not None:
        yield f"{where}: {name} is a secret, and stands there with its value"
    elif not (name in keys or plain in keys or name in _OTHERS or _is_read(name)):
        yield f"{where}: {name} is not read"
    elif value is not None and (field := name.removeprefix(PREFIX).lower()) in Settings.model_fields:
        try:
            Settings.model_validate({field: value})
        except ValidationError as error:
            yield f"{where}: {name}={value}: {error.errors()[0]['msg']}"


def _is_read(name: str) -> bool:
    """Whether it is a variable of Palaver's, one of OpenTelemetry's for traces, or an option of Flower."""
    if _TRACING.fullmatch(name):
        return name in vars(environment_variables)
    if name.startswith("FLOWER_"):
        from flower.options import default_options

        return name.removeprefix("FLOWER_").lower() in default_options
    return name in variables()


def _provider_keys(kit: Kit) -> frozenset[str]:
    tables = [(kit.root / "deploy" / "providers.toml").read_text()]
    for values in kit.value_sets:
        tables += [each["data"]["providers.toml"] for each in kit.render(values) if each["kind"] == "ConfigMap"]
    return frozenset(name for table in tables for name in _KEY.findall(table))


def _variables(kit: Kit) -> Iterator[Variable]:
    for line in re.findall(r"^ENV (.*)$", kit.dockerfile.read_text(), re.MULTILINE):
        yield from (Variable("Dockerfile", name, value) for name, value in _IMAGE.findall(line))
    for unit in [*kit.units, *kit.drop_ins]:
        set_there = _LINE.findall(unit.read_text().replace("%i", _INSTANCE))
        yield from (Variable(f"{unit.parent.name}/{unit.name}", name, value) for name, value in set_there)
    (stack,) = documents(run("docker-compose", "--file", str(kit.compose), "config", "--no-path-resolution"))
    for name, service in stack["services"].items():
        for each, value in service.get("environment", {}).items():
            yield Variable(f"compose: {name}", each, str(value))
    for values in kit.value_sets:
        yield from _of_chart(kit, values)


def _of_chart(kit: Kit, values: Path) -> Iterator[Variable]:
    for manifest in kit.render(values):
        for container in containers_of(manifest):
            where = f"{values.name}: {container.where}"
            yield from (Variable(where, name, value) for name, value in container.values.items())
            yield from (Variable(where, name, None) for name in container.secret_values)
