"""Connections to services by HTTP: which addresses are connected to, and how requests and answers go over them."""
