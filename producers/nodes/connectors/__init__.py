"""What every connector to a real broker shares: its interface, checks, addresses, subjects."""
