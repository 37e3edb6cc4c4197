"""The endpoint that an agent brings for its models: at a host that the operator allows."""

from __future__ import annotations

from collections.abc import Iterator

from palaver.errors import FieldError
from palaver.schemas.endpoints import INLINE
from palaver.schemas.models import AgentSpec

from ..lookup import Known
from .secrets import secret_faults


def endpoint_faults(agent: AgentSpec, known: Known) -> Iterator[FieldError]:
    """Yield the faults of an agent's endpoint."""
    endpoint, hosts = agent.endpoint, known.endpoint_hosts
    if endpoint is None:
        return
    if not endpoint.allowed_by(hosts):
        allowed = f"it allows: {', '.join(hosts)}" if hosts else "it is not set"
        why = f"is at a host that PALAVER_INLINE_PROVIDER_HOSTS does not allow; {allowed}"
        yield FieldError("/agent/endpoint/base_url", "endpoint_not_allowed", why)
    if not any(name.partition("/")[0] == endpoint.name for name in agent.models):
        why = f"is asked for no model: call one of them {INLINE}/NAME"
        yield FieldError("/agent/endpoint", "endpoint_not_allowed", why)
    yield from secret_faults(endpoint.api_key, "/agent/endpoint/api_key", seals=known.seals)
