"""Runs in the environment of OpenHands' agent-server, with its own client: begins a conversation for each line of the
standard input, runs it, and writes when `run()` was called and when it returned, in seconds since 1970."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")
# What libraries print goes to the standard error.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

from openhands.sdk import LLM, Agent, Conversation  # noqa: E402
from openhands.sdk.workspace import RemoteWorkspace  # noqa: E402

kept = []
"""Who closes a conversation waits seconds for its socket: they end with the process."""

answers.write("{}\n")
for line in sys.stdin:
    asked = json.loads(line)
    llm = LLM(model=asked["model"], base_url=asked["base_url"], api_key="any", usage_id="agent")
    agent = Agent(llm=llm, tools=[], system_prompt=asked["prompt"])
    workspace = RemoteWorkspace(host=asked["host"], working_dir=asked["working_dir"])
    conversation = Conversation(agent=agent, workspace=workspace, visualizer=None)
    kept.append(conversation)
    conversation.send_message("hello")
    called = time.time()
    conversation.run()
    answers.write(json.dumps({"called": called, "returned": time.time()}) + "\n")
os._exit(0)
