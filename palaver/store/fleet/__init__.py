"""Workers, their tools, their queues, and the providers that they share."""
