"""The pure domain: configurations and epochs, trees, delivery sets, interest and the cost function.

No I/O except reading and writing inventory files, no clock, and no randomness except generators passed in.
"""
