"""Jaeger07 (self-organising broker topologies): its evaluation on the virtual clock, with our planner."""
