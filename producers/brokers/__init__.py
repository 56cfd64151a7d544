"""The protocol core of a broker, pure: messages in, effects out. Every real node embeds it, too."""
