"""Planners: pure functions (state, settings, rng) -> proposals, one file for each algorithm. No clock, no I/O."""
