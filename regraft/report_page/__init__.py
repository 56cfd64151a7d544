"""The report: one page about one run."""
