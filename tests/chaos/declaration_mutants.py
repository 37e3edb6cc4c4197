"""Mutants of how tools are declared and where they are imported: each breaks one promise of ADR 0030, and the test that
is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_ELSEWHERE: Final = "workers/sources/elsewhere.py"
_OFFERED: Final = "tests/unit/test_elsewhere.py"

MUTANTS: Final = by_name(
    TestedMutant(
        "a model is offered the version that spoke last",
        _OFFERED,
        Change(
            _ELSEWHERE, "(digest in living, sets[digest].since, digest)", "(digest in living, sets[digest].seen_at)"
        ),
    ),
    TestedMutant(
        "the bolder of two versions counts",
        _OFFERED,
        Change(_ELSEWHERE, '"risky": any(version.risky', '"risky": all(version.risky'),
    ),
    TestedMutant(
        "an inline tool without its code runs within the model step",
        _OFFERED,
        Change(_ELSEWHERE, '"inline": False', '"inline": versions[0].inline'),
    ),
    TestedMutant(
        "a tool is gone while a model may ask for it",
        _OFFERED,
        Change(_ELSEWHERE, "self._tools = tools | held", "self._tools = tools"),
    ),
    TestedMutant(
        "somebody is asked about a call that does not fit",
        _OFFERED,
        Change("workers/sources/toolbox.py", "fitting(declared, text)", "pass"),
    ),
    TestedMutant(
        "a step that lacks a tool does not look again",
        "tests/unit/test_capabilities.py",
        Change(
            "workers/steps/declared_tools.py",
            "self._fresh.get(lambda elsewhere: tool in elsewhere)",
            "self._fresh.get()",
        ),
    ),
)
