"""The overlay in a browser: the live view as it changes, and a way to give orders."""
