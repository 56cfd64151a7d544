"""Reproduction of Shafique's evaluation: OctopiA's routing over structured cyclic overlays."""
