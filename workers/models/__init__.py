"""Model calls, and the limits of providers that all workers share."""
