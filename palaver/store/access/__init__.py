"""Who may use the API: keys, keys that sign tokens, and what was done with them."""
