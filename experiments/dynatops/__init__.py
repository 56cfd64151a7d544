"""Zhao13 again: DYNATOPS on a Chord ring, the systems it is compared with, and ours."""
