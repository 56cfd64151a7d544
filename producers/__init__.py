"""Telemetry in, commands applied: the edge of the overlay. Imports neither streaming nor controller."""
