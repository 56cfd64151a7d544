"""State and events to alerts: rules with raise and clear, told once each, to people and to ``regraft.events``."""
