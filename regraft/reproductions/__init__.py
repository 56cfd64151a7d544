"""The papers' evaluations repeated, with ours for comparison."""
