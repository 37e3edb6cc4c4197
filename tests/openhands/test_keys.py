"""OpenHands' own clients where every request wants a key, and tools are given secrets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.openhands.client import ClientError, OpenHandsClient
from tests.openhands.test_remote_conversation import kinds, open_conversation
from tests.process.cluster import Cluster
from tests.process.trusted_tools import CANARY, NAME
from tests.unit.api_world import SECRET_KEY
from tests.waiting import eventually

pytestmark = pytest.mark.process
_KEY = "a-key-of-the-api-0123"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Palaver with keys, and with tools that tell what they are given."""
    environment = {
        "PALAVER_API_KEYS": f"ann={_KEY}",
        "PALAVER_SECRET_KEY": SECRET_KEY,
        "PALAVER_TOOLS": "tests.process.trusted_tools",
    }
    with Cluster(tmp_path_factory.mktemp("guarded"), environment=environment) as cluster:
        yield cluster


def test_who_has_no_key_is_refused_and_who_has_gives_secrets(openhands: OpenHandsClient, guarded: Cluster) -> None:
    for wrong in (None, "another-key-0123456"):
        with pytest.raises(ClientError, match="401"):
            open_conversation(openhands, guarded, "echo", api_key=wrong)
    conversation = open_conversation(openhands, guarded, "tool-1+use-tells", "tells", api_key=_KEY)
    conversation.do("keep", secrets={NAME: "an-older-value"})
    newer = openhands.generation == "1.58.2"
    # The older client cannot send its own objects.
    described = {"kind": "StaticSecret", "value": CANARY, "description": "A token."}
    conversation.do("keep", secrets={NAME: described if newer else CANARY})
    conversation.call("send_message", "hello")
    conversation.run()
    told = ["SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "MessageEvent"]
    # By its socket, which wants the key as well.
    eventually(lambda: kinds(conversation.do("heard")) == told)
    result = next(event for event in conversation.do("events") if event["kind"] == "ObservationEvent")
    assert f"the token has {len(CANARY)} characters" in str(result)
    assert CANARY not in str([conversation.do("events"), conversation.do("heard"), conversation.do("state")])
    conversation.leave()
