"""Turn state and events into alerts: rules raise and clear them; each is reported once, to people and as an event."""
