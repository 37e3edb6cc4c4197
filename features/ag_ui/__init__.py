"""AG-UI as a dialect: kits that speak the Agent User Interaction Protocol show runs and answer them."""

from __future__ import annotations

from .dialect import AG_UI

__all__ = ["AG_UI"]
