"""Many conversations of OpenHands' own client at once, each in a thread, as programs have them: words of the driver.

Each has a name, what it is begun with (`model`, `tools`, `options`, `policy`), what is said in it (`text`), and how
long a run is waited for (`timeout`). All that are told a word obey it beside each other: `open`, `run`, `again`.

The ledger has a line for all that their callbacks are `told`, with whether the server keeps it, and for what came of
each word: `did`, with what was `raised`. Requests are not sent again by this: what a client raises is raised.
"""

from __future__ import annotations

import json
import os
import threading

from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.sdk.security import confirmation_policy
from openhands.sdk.workspace import RemoteWorkspace


class Talker:
    """One of the conversations."""

    def __init__(self, host, ledger, plan):
        self.host = host
        self.ledger = ledger
        self.plan = plan
        self.conversation = None

    def write(self, **line):
        """A line of the ledger."""
        os.write(self.ledger, json.dumps({"of": self.plan["name"], **line}).encode() + b"\n")

    def told(self, event):
        """What the callback is told."""
        key = getattr(event, "key", None)
        kept = key != "full_state" and (key != "execution_status" or event.value != "idle")
        self.write(told=event.id, kind=type(event).__name__, kept=kept)

    def obey(self, word):
        """Do it, and write what came of it."""
        line = {"did": word}
        try:
            line |= getattr(self, word)() or {}
        except Exception as error:
            cause = getattr(error, "conversation_error", None)
            line |= {"raised": type(error).__name__, "why": str(error), "code": getattr(cause, "code", None)}
        self.write(**line)

    def open(self):
        """Begin the conversation, and say something."""
        plan = self.plan
        agent = Agent(llm=LLM(**plan["llm"]), tools=[Tool(name=name) for name in plan["tools"]])
        self.conversation = Conversation(
            agent=agent,
            workspace=RemoteWorkspace(host=self.host, working_dir="workspace"),
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


talkers = {}
"""Those of the crowd, by name."""


def gather(_, *, host, ledger, conversations):
    """Have these conversations, none of them begun."""
    opened = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    talkers.update({plan["name"]: Talker(host, opened, plan) for plan in conversations})


def tell(_, *, word, names):
    """Tell some of them a word."""
    for name in talkers.keys() & names:
        threading.Thread(target=talkers[name].obey, args=(word,), daemon=True).start()


def disperse(_):
    """Have none any more. A client looks for 5 s whether its socket is told something more: nobody waits for that."""
    while talkers:
        _, talker = talkers.popitem()
        if talker.conversation is not None:
            threading.Thread(target=talker.conversation.close, daemon=True).start()
