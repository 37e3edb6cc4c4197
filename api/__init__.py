"""The thin edge, on Starlette. A dialect reads a request, calls one use case of ``palaver.operations``, and answers."""
