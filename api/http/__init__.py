"""Requests and answers, whatever they are about: heads, bodies, queries, keys, sockets, and problems."""
