"""Stages as processes: run one, start, watch and stop all, and judge their health."""
