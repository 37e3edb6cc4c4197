"""Processes and asyncio tasks: the tree below a process, the end of a task, places to fail at."""
