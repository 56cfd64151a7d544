"""What the loop shows of itself: live view, events, metrics, log lines."""
