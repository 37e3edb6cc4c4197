"""A guest adds a kind of step: a row, a function under `@step`, and who opens it. Claim, settle, the sweeper, queues,
Redis's lists and Celery's tasks follow: on a stack of real processes, in a copy of the tree."""

from __future__ import annotations

import json

import pytest

from tests.chaos.mutation import Change, run_in, tree

pytestmark = pytest.mark.process

_INDENT = " " * 24
GUEST = (
    Change(
        "palaver/vocabulary/step_kinds.py",
        "KINDS: Final = (MODEL, TOOL)\n",
        'LOOKUP: Final = StepKind("lookup", queue="lookups")\nKINDS: Final = (MODEL, TOOL, LOOKUP)\n',
    ),
    Change(
        "workers/steps/step_functions.py",
        "@step(TOOL, retry=TOOL_CALL)\n",
        "@step(LOOKUP, retry=TOOL_CALL)\n"
        "async def look_up(attempt: Attempt) -> Verdict:\n"
        '    """Look something up."""\n'
        '    return Continue(outcomes=(answer(attempt.lease.answers, "looked up"),))\n\n\n'
        "@step(TOOL, retry=TOOL_CALL)\n",
    ),
    Change(
        "workers/steps/step_functions.py",
        f"kind=kind,\n{_INDENT}queue=tool.queue,\n{_INDENT}shown=shown,\n{_INDENT}at_hand=kind is TOOL and",
        f"kind=LOOKUP,\n{_INDENT}shown=shown,\n{_INDENT}at_hand=False and",
    ),
    Change(
        "workers/steps/step_functions.py",
        "import MODEL, REMOTE, TOOL\n",
        "import LOOKUP, MODEL, REMOTE, TOOL\n",
    ),
)


def test_a_third_kind_is_a_row_and_a_function() -> None:
    with tree(*GUEST) as root:
        found = json.loads(run_in(root, "-m", "tests.process.third_kind", "../stack"))
    assert found == {
        "status": "completed",
        "result": "looked up",
        "workers": 1,
        "lost": "completed",
        "cancelled": "cancelled",
        "ready": 0,
    }
