"""The settings of a run: their sources, their checks, and those of a demo."""
