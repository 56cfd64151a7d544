"""Structured cyclic overlays: configuration, places, costs."""
