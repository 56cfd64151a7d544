"""What the loop publishes about itself: live view, events, metrics, log lines."""
