"""The demo: the whole loop on this machine, from the first process to the report."""
