"""Planners of structured cyclic overlays, one file for each algorithm."""
