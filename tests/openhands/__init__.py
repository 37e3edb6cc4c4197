"""OpenHands' own client against Palaver: each generation of it in an environment of its own."""
