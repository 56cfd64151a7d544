"""The commands of ``regraft``: flags in, one call to what does the work, outcomes as exit codes."""
