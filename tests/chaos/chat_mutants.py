"""Mutants of chats of the AI SDK: each breaks one promise of ADR 0053, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_AI_SDK: Final = "features/ai_sdk/"
_TABLE: Final = f"{_AI_SDK}projection.py"
_VIEW: Final = "api/kit/run_view.py"
_FOLLOWED: Final = "api/kit/projections.py"
_SHOWN: Final = "api/kit/shown_run.py"


def _mutant(name: str, file: str, old: str, new: str, test: str = "projection") -> TestedMutant:
    return TestedMutant(name, f"features/ai_sdk/tests/unit/test_ai_sdk_{test}.py", Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant("text of a failed attempt that stays", _VIEW, "        if self._shown:\n", "        if False:\n"),
    _mutant("a rest that is not said", _VIEW, "        if rest:\n", "        if False:\n"),
    _mutant("torn text that is taken for whole", _SHOWN, "zlib.crc32(begun.encode()) == self._checksum", "True"),
    _mutant("a call id that comes twice", _TABLE, 'f"{call.id}~{call.step}" if call.again else ', ""),
    _mutant("more behind the end", _VIEW, "        if self.over:\n            return self._told\n", ""),
    _mutant("an end at each wait of the past", _VIEW, "        if event.seq >= self.edge:\n    ", ""),
    _mutant("an end before a result", _VIEW, "self._idle and not self._settled", "self._idle"),
    _mutant(
        "a wait that goes on for those who look on",
        _VIEW,
        "if approved or not self.asked:",
        "if True:",
    ),
    _mutant(
        "steering within a step",
        _VIEW,
        "        self._leave()\n        self._told += self._steered\n        self._steered = []\n",
        "        self._told += self._steered\n        self._steered = []\n        self._leave()\n",
    ),
    _mutant("what was before said again", _FOLLOWED, "self._muted = bool(answers)", "self._muted = False"),
    _mutant(
        "what came between lost",
        _FOLLOWED,
        "return items if self._held is None else self._held",
        "return items",
    ),
    _mutant(
        "an end that clients go on behind",
        f"{_AI_SDK}tables.py",
        'CANCELLED: "interrupted"',
        'CANCELLED: "other"',
        "api",
    ),
    _mutant("a stop of whatever is written", f"{_AI_SDK}resuming.py", "body.runId in (None, run_id)", "True", "api"),
    _mutant(
        "a message as many runs as requests",
        f"{_AI_SDK}chatting.py",
        '{conversation_id} {message_id}"',
        '{conversation_id} {id(body)}"',
        "api",
    ),
    _mutant("answers of steps that are over", f"{_AI_SDK}wire.py", "            found = {}\n", "            pass\n"),
)
