"""Submits a run, watches it, approves what it asks for and lists what has ended, on a client that was generated."""

from __future__ import annotations

import json
import os

from palaver_api import AuthenticatedClient
from palaver_api.api.runs import list_runs, send_input, submit
from palaver_api.models import (
    ActionRequired,
    AgentSpecInput,
    ApprovalDecision,
    ApprovalDecisionDecision,
    ApprovalsInput,
    ApprovalsInputRequireType0,
    EventPage,
    ListRunsStatusItem,
    MessageCreated,
    Run,
    RunFinished,
    RunInput,
    RunList,
    Submission,
)

client = AuthenticatedClient(os.environ.get("PALAVER_URL", "http://127.0.0.1:8080"), token="none-is-needed-here")
asks = ApprovalsInput(require=ApprovalsInputRequireType0.ALWAYS)
agent = AgentSpecInput(model="fake/tool-1", tools=["calculator"], approvals=asks)
run = submit.sync(client=client, body=Submission(agent=agent, input_="What is 1 + 1?"))
assert isinstance(run, Run), run
with client.get_httpx_client().stream("GET", run.links.events, headers={"Accept": "text/event-stream"}) as stream:
    for line in stream.iter_lines():
        if not line.startswith("data: "):
            continue
        page = {"data": [json.loads(line.removeprefix("data: "))], "next_after": 0, "has_more": False}
        [event] = EventPage.from_dict(page).data
        if isinstance(event, MessageCreated):
            for call in event.message.tool_calls:
                print("calls", call.name, call.arguments.strip())
        elif isinstance(event, ActionRequired):
            yes = ApprovalDecision("approval", event.action.id, ApprovalDecisionDecision.APPROVE)
            assert isinstance(send_input.sync(run.id, client=client, body=RunInput([yes])), Run)
        elif isinstance(event, RunFinished):
            print(event.status.value, event.error.class_.value if event.error else "without an error")
ended = list_runs.sync(client=client, status=[ListRunsStatusItem.COMPLETED, ListRunsStatusItem.FAILED], limit=200)
assert isinstance(ended, RunList), ended
print(*(each.usage.tool_calls for each in ended.data if each.id == run.id))
