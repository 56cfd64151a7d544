"""A Chord ring: ring IDs are reassigned and users move."""
