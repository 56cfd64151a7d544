"""The commands of ``regraft``: each reads flags, calls the code that does the work, and exits with its outcome."""
