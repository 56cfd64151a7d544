"""Planners of rings, one file for each algorithm."""
