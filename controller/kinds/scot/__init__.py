"""Structured cyclic overlays, as the controller sees them."""
