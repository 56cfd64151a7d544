"""Planners that exist as yardsticks of the papers, found by entry point like those of any other package."""
