"""State rows to closed windows: put together, with deliveries, clients and lifetimes."""
