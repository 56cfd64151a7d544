"""What is known, as values: overlay states, closed windows, the result of proposals, the plan log."""
