"""The thin edge, on FastAPI. A dialect reads a request, calls one use case of ``api.operations``, and answers."""
