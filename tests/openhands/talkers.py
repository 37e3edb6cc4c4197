"""Many conversations of OpenHands' own client at once, each in a thread, as programs have them.

The first line of the standard input is JSON: the `host`, the `ledger`, and the `conversations`, each with a name, what
it is begun with (`model`, `tools`, `options`, `policy`), what is said in it (`text`), and how long a run is waited for
(`timeout`). Each further line is a `word` that those `of` these names obey, beside each other: `open`, `run`, `again`.

The ledger has a line for all that their callbacks are `told`, with whether the server keeps it, and for what came of
each word: `did`, with what was `raised`. Requests are not sent again by this: what a client raises is raised.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import warnings

warnings.simplefilter("ignore")
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1", "LOG_LEVEL": "CRITICAL"}

# What is imported stays: to look through it again and again would take a sixth of the time.
gc.disable()
from openhands.sdk import LLM, Agent, Conversation, Tool  # noqa: E402
from openhands.sdk.security import confirmation_policy  # noqa: E402
from openhands.sdk.workspace import RemoteWorkspace  # noqa: E402

gc.freeze()
gc.enable()

spec = json.loads(sys.stdin.readline())
ledger = os.open(spec["ledger"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def write(**line):
    """A line of the ledger."""
    os.write(ledger, json.dumps(line).encode() + b"\n")


class Talker:
    """One of the conversations."""

    def __init__(self, plan):
        self.plan = plan
        self.conversation = None

    def told(self, event):
        """What the callback is told."""
        key = getattr(event, "key", None)
        kept = key != "full_state" and (key != "execution_status" or event.value != "idle")
        write(of=self.plan["name"], told=event.id, kind=type(event).__name__, kept=kept)

    def obey(self, word):
        """Do it, and write what came of it."""
        line = {"of": self.plan["name"], "did": word}
        try:
            line |= getattr(self, word)() or {}
        except Exception as error:
            cause = getattr(error, "conversation_error", None)
            line |= {"raised": type(error).__name__, "why": str(error), "code": getattr(cause, "code", None)}
        write(**line)

    def open(self):
        """Begin the conversation, and say something."""
        plan = self.plan
        agent = Agent(llm=LLM(**plan["llm"]), tools=[Tool(name=name) for name in plan["tools"]])
        self.conversation = Conversation(
            agent=agent,
            workspace=RemoteWorkspace(host=spec["host"], working_dir="workspace"),
            callbacks=[self.told],
            visualizer=None,
            **plan["options"],
        )
        self.conversation.delete_on_close = False
        if plan["policy"]:
            self.conversation.set_confirmation_policy(getattr(confirmation_policy, plan["policy"])())
        self.conversation.send_message(plan["text"])
        return {"id": str(self.conversation.id)}

    def run(self):
        """Run, until the client says that it is over."""
        self.conversation.run(poll_interval=0.5, timeout=self.plan["timeout"])
        return {"status": self.conversation.state.execution_status.value}

    def again(self):
        """Say something else, unless something waits for approval, and run."""
        if not self.plan["policy"]:
            self.conversation.send_message("go on")
        return self.run()


talkers = {plan["name"]: Talker(plan) for plan in spec["conversations"]}
for told in map(json.loads, sys.stdin):
    for name in talkers.keys() & told["of"]:
        threading.Thread(target=talkers[name].obey, args=(told["word"],), daemon=True).start()
os._exit(0)
