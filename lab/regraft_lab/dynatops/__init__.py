"""Reproduction of Zhao13: DYNATOPS on a Chord ring, the systems it is compared with, and ours."""
