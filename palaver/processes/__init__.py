"""Processes and asyncio tasks: the tree below one, the end of the other, the garbage collector, places to fail at."""
