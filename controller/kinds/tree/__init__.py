"""A tree: links are exchanged and publishers move."""
