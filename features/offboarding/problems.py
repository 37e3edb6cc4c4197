"""Problems with the erasure of a tenant: why it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from palaver.errors.problem_codes import ProblemCode

PROBLEMS: Final[Mapping[str, ProblemCode]] = MappingProxyType(
    {"default_tenant": ProblemCode(409, "The default tenant stays")}
)
