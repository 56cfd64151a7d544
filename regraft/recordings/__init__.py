"""Make a recording of a run, describe it, cut it into windows, and hold alert rules to it."""
