"""What planners of structured cyclic overlays share."""
