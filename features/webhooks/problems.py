"""Problems with webhooks: why a request is refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from palaver.errors.problem_codes import ProblemCode

PROBLEMS: Final[Mapping[str, ProblemCode]] = MappingProxyType(
    {
        "webhook_not_found": ProblemCode(404, "There is no such webhook"),
        "webhooks_full": ProblemCode(409, "There are too many webhooks", full=True),
        "webhook_of_file": ProblemCode(409, "The webhook is the operator's"),
    }
)
