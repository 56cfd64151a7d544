"""A plan's way through its phases: review, commands and answers, verification."""
