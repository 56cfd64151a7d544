"""Stages as processes: running one, starting, watching and stopping all, and judging their health."""
