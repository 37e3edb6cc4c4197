"""A shop with a chat for its users: ``python examples/fastapi/shop.py``, then open what it prints."""

from __future__ import annotations

import hmac
import os
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, HTTPException, Response
from fastapi.requests import HTTPConnection
from fastapi.responses import FileResponse

import palaver

HERE = Path(__file__).parent
SECRET = os.environ.get("SHOP_SECRET", "for a try").encode()
COMPANIES = {"ann": "acme", "bob": "acme", "eve": "globex"}  # Your database has users, and the companies they are of.


def signed(name: str) -> str:
    return f"{name}.{hmac.new(SECRET, name.encode(), 'sha256').hexdigest()}"


async def who(connection: HTTPConnection) -> palaver.Identity | None:
    """The caller of the API below /agents: whose cookie a request or a WebSocket brings."""
    cookie = connection.cookies.get("user", "")
    name = cookie.partition(".")[0]
    known = name in COMPANIES and hmac.compare_digest(cookie.encode(), signed(name).encode())
    return palaver.Identity(user=f"user:{name}", tenant=COMPANIES[name]) if known else None


agents = palaver.asgi(identity=who)
app = FastAPI(lifespan=agents.lifespan)
app.mount("/agents", agents)


@app.get("/")
async def page() -> FileResponse:
    return FileResponse(HERE / "index.html")


@app.post("/login/{name}", status_code=204)
async def login(name: str, response: Response) -> None:
    if name not in COMPANIES:
        raise HTTPException(404)
    response.set_cookie("user", signed(name), httponly=True, samesite="lax")


if __name__ == "__main__":  # Here all that stands beside it starts with it: Redis, workers, a model to try.
    sys.path.append(str(HERE.parent))
    from serve import HOST, ORIGIN, PORT, a_palaver, expect_free

    expect_free(PORT, "PAGE_PORT")
    data, redis = os.environ.get("PALAVER_DATA_DIR", ".palaver"), os.environ.get("PALAVER_REDIS_PORT", "6390")
    os.environ |= {"PALAVER_TOOLS": "shop_tools", "PYTHONPATH": str(HERE)}
    os.environ["PALAVER_ARCHIVE_URL"] = f"sqlite:///{data}/archive.db"
    with a_palaver():
        os.environ |= {"PALAVER_REDIS_URL": f"redis://{HOST}:{redis}/0", "PALAVER_PROVIDERS": f"{data}/providers.toml"}
        print(f"open {ORIGIN}", flush=True)
        uvicorn.run(app, host=HOST, port=PORT, log_level="warning")
