"""The configuration of a process: settings, providers, the broker, roles and their start."""
