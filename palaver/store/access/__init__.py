"""Access to the API: keys, keys that sign tokens, and what was done with them."""
