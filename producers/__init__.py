"""The edge of the overlay: telemetry out, commands executed. Imports neither streaming nor controller."""
