"""Planners of trees, one file for each algorithm."""
