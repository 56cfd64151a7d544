"""What is known, as values: overlay states, closed windows, what proposals lead to, the log of plans."""
