"""The console in a browser: its weight, 50 of them left alone, a night of one, and lists of very many."""
