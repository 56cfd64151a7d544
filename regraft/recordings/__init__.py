"""Record a run, describe a recording, aggregate it into windows, and test alert rules on it."""
