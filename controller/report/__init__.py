"""What the loop shows of itself: status document, events, metrics, log lines."""
