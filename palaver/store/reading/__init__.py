"""Reads without a script: runs and logs, lists, feeds for watchers."""
