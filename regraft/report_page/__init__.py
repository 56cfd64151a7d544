"""The report on a run: one HTML page."""
