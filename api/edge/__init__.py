"""The edge: connections of clients, from the listening socket to bytes of requests and answers, and their limits."""
