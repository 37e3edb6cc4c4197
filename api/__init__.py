"""The thin edge: FastAPI. Every route validates, calls one method of the store, and answers."""
