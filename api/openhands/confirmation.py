"""When calls of tools wait for somebody: OpenHands' policies as our approvals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from palaver.schemas.actions import Approvals

from .fields import Known

_UNASKED = frozenset({"finish", "think"})
"""They have no effect outside the conversation: nobody is asked about them."""


class Policy(Known):
    """A confirmation policy."""

    kind: Literal["NeverConfirm", "AlwaysConfirm", "ConfirmRisky"] = "NeverConfirm"
    threshold: Literal["UNKNOWN", "LOW", "MEDIUM", "HIGH"] = "HIGH"
    confirm_unknown: bool = True

    def shown(self) -> dict[str, object]:
        """As clients read it."""
        if self.kind != "ConfirmRisky":
            return {"kind": self.kind}
        return {"kind": self.kind, "threshold": self.threshold, "confirm_unknown": self.confirm_unknown}


def approvals(policy: Policy, tools: Sequence[str], *, analyzed: bool) -> Approvals:
    """The approvals that an agent with these tools has.

    How risky a call is, its tool says (``risky``), for who has a security analyzer; without one it is not known.
    """
    asked = tuple(name for name in tools if name not in _UNASKED)
    match policy.kind:
        case "NeverConfirm":
            return Approvals(require="never")
        case "AlwaysConfirm":
            return Approvals(require=asked or "never")
        case "ConfirmRisky":
            if analyzed:
                return Approvals(require=asked if policy.threshold == "LOW" and asked else "risky")
            return Approvals(require=asked if policy.confirm_unknown and asked else "never")
