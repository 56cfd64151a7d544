"""Links between nodes: frames, sessions, connections, and which nodes could be linked."""
