"""Zhao and Wu again: minimum cost overlays."""
