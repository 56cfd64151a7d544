"""The settings of a run: where each comes from, how they are checked, what a demo's are."""
