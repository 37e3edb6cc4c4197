"""Print the document of the whole API, from which clients are made: ``python -m deploy.openapi``."""

from __future__ import annotations

import json

from api.app import create_app

if __name__ == "__main__":
    print(json.dumps(create_app().openapi()))
