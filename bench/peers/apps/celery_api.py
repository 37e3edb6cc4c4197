"""An API before the Celery worker, in a process of its own: FastAPI, and Celery's result backend for the status."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from fastapi import FastAPI

from bench.peers.apps import agent
from bench.peers.apps.celery_worker import app as celery
from bench.peers.apps.celery_worker import step

app = FastAPI()


def _begin(job: agent.Job) -> str:
    job["run"] = str(uuid4())
    step.apply_async((job, agent.beginning(job)), task_id=job["run"])
    return job["run"]


@app.post("/runs")
def submit(job: agent.Job) -> dict[str, Any]:
    """Begin a run."""
    return {"id": _begin(job)}


@app.post("/runs/wait")
def submit_and_wait(job: agent.Job) -> dict[str, Any]:
    """Begin a run and wait for its end."""
    run = _begin(job)
    return {"id": run, "output": celery.AsyncResult(run).get(timeout=120)}


@app.get("/runs/{run}")
def status(run: str) -> dict[str, Any]:
    """Where a run is."""
    return {"id": run, "status": celery.AsyncResult(run).state}


@app.post("/runs/{run}/cancel")
def cancel(run: str) -> dict[str, Any]:
    """Stop a run, as far as Celery can."""
    celery.control.revoke(run, terminate=True)
    return {"id": run}
