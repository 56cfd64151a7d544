"""The control loop: its steps, one file each, what they share, and the composition of all parts."""
