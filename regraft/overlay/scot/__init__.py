"""Structured cyclic overlays: configuration, slots, costs."""
