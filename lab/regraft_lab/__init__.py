"""Reproductions of the papers, one folder each: workload, baselines, figures and tables."""
