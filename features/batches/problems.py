"""Problems with batches: why a request is refused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from palaver.errors import UnknownRecord
from palaver.errors.problem_codes import ProblemCode

PROBLEMS: Final[Mapping[str, ProblemCode]] = MappingProxyType(
    {
        "batch_not_found": ProblemCode(404, "There is no such batch"),
        "batches_full": ProblemCode(409, "There are too many batches", full=True),
        "batch_full": ProblemCode(409, "The batch has too many items or runs", full=True),
        "batch_offset": ProblemCode(409, "The items do not go on where the others end"),
        "batch_active": ProblemCode(409, "The batch has not ended"),
    }
)


class UnknownBatch(UnknownRecord):
    """There is no batch of that id."""

    code = "batch_not_found"

    def __init__(self, batch_id: str) -> None:
        super().__init__("there is no batch of that id")
        self.batch_id = batch_id
