"""Telemetry to windowed state: the Spark job and its reference aggregator. Imports neither producers nor controller."""
