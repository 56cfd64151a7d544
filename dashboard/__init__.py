"""The overlay in a browser: what the live view holds, as it changes; and a way to give orders."""
