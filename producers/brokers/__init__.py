"""A broker's protocol core, pure: messages in, effects out. Nodes next to real brokers embed it too."""
