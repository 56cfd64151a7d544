"""The pure domain: configurations and epochs, trees, delivery sets, interest and the one cost.

No I/O but reading and writing an inventory file, no clock, no randomness that is not passed in.
"""
