"""Problems with schedules: why a request is refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from palaver.errors import UnknownRecord
from palaver.errors.problem_codes import ProblemCode

PROBLEMS: Final[Mapping[str, ProblemCode]] = MappingProxyType(
    {
        "schedule_not_found": ProblemCode(404, "There is no such schedule"),
        "schedules_full": ProblemCode(409, "There are too many schedules", full=True),
        "schedule_changed": ProblemCode(412, "The schedule is not as the request expects"),
    }
)


class UnknownSchedule(UnknownRecord):
    """There is no schedule of that name."""

    code = "schedule_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name[:64]}")
