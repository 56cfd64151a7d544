"""What a process of Regraft needs: clock, metrics, locks, progress, errors in sentences."""
