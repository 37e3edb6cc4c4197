"""The thin edge, on FastAPI. A dialect reads a request, calls one use case of ``palaver.operations``, and answers."""
