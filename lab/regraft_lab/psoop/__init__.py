"""Reproduction of Jaeger07 (self-organising broker topologies) on the virtual clock, with our planner."""
