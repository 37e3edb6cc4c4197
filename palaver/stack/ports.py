"""The ports of the stack's servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from palaver.config.roles import port_number
from palaver.stack.errors import StackError
from palaver.testing.ports import free_port, port_is_free

VARIABLES = {
    "api": "PALAVER_API_PORT",
    "flower": "PALAVER_FLOWER_PORT",
    "redis": "PALAVER_REDIS_PORT",
    "model_server": "PALAVER_MODEL_PORT",
}


@dataclass(frozen=True)
class Ports:
    """The loopback port of each server; the defaults are those of `palaver up`."""

    api: int = 8080
    flower: int = 5555
    redis: int = 6390
    model_server: int = 9101

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Ports:
        """The ports of PALAVER_API_PORT and its like. Raises SystemExit, with a sentence, for a value that is none."""
        values = {name: (environment.get(variable), variable) for name, variable in VARIABLES.items()}
        return cls(**{name: port_number(text, variable) for name, (text, variable) in values.items() if text})

    @classmethod
    def free(cls) -> Ports:
        """Different ports that nobody listens on now."""
        ports: set[int] = set()
        while len(ports) < len(VARIABLES):
            ports.add(free_port())
        return cls(*ports)

    def require(self, name: str) -> None:
        """Raise StackError, naming the variable to set, when the port of `name`, if it has one, is taken."""
        port = asdict(self).get(name)
        if port is not None and not port_is_free(port):
            raise StackError(
                f"port {port} for {name} is in use: stop what listens there, or set {VARIABLES[name]} to another port"
            )
