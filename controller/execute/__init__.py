"""Take a plan through its phases: review, commands and answers, verification."""
