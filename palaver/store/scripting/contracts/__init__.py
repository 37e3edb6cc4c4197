"""The declarations of the scripts: what each takes and answers. Lua gets its side from them, by ``assembly.py``."""
