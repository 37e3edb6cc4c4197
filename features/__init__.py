"""Features: what stands beside the core, each in a folder of its own. No other package imports one."""
