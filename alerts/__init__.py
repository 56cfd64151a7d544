"""State and events to alerts: rules with raise and clear, each reported once, to people and to ``regraft.events``."""
