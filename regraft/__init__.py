"""The command line and the composition of all stages; the only package that imports them all."""

__version__ = "0.3.0"
