"""Delivery sets: which broker wants which notification, as bits."""
