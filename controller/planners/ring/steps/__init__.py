"""What planners of rings share."""
