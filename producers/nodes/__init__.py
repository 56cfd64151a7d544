"""Nodes: the protocol core of a broker next to a real broker, with links to other nodes over TCP."""
