"""Parts of a dialect: routes with their signatures, their place in the OpenAPI document, and streams of events."""
