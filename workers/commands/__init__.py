"""Commands that need the code of a worker."""
