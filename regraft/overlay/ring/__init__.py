"""Rings: configuration, ids, costs of swaps, users."""
