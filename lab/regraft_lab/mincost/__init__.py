"""Reproduction of Zhao11: minimum cost overlays."""
