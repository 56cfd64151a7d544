"""The steps of the control loop: each takes the loop's state and the time, and does one thing that is due."""
