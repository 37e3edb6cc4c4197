"""What stands in the addresses of OpenHands' routes has the form and the most that the document says."""

from __future__ import annotations

import re

from tests.unit.test_api_openapi import WHOLE, check_list


def test_a_uuid_in_an_address_has_its_form_in_the_document() -> None:
    paths = WHOLE["paths"]
    (conversation,) = paths["/openhands/api/conversations/{conversation}"]["get"]["parameters"]
    (ids,) = paths["/openhands/api/conversations"]["get"]["parameters"]
    uuid = "0190f0e0-1111-4222-8333-444455556666"
    for schema in (conversation["schema"], ids["schema"]["items"]):
        assert [bool(re.search(schema["pattern"], text)) for text in (uuid, uuid.replace("-", ""))] == [True, True]
        assert not any(re.search(schema["pattern"], text) for text in ("", "conv_00" + "0" * 26, f"{uuid}0"))


async def test_a_list_in_an_address_has_the_most_that_the_document_says() -> None:
    await check_list("/openhands/api/conversations", "ids", "0190f0e0-1111-4222-8333-444455556666", 400)
