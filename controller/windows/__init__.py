"""Turn state rows into closed windows: assembled, with deliveries, clients and lifetimes."""
