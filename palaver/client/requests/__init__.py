"""The requests of the SDK: each route as a `Request`."""
