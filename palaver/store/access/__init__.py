"""Who may use the API: keys."""
