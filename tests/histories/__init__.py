"""Histories of clients, and the search for an order of their operations in which every promise is kept.

`linearizability` searches, and knows the promises alone; `recorder` asks, and writes down what was answered when;
`crowd` is the clients.
"""
