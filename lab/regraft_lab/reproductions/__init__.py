"""Repeat the evaluations of the papers, with our planner for comparison."""
