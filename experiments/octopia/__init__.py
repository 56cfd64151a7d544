"""Shafique's evaluation again: OctopiA's routing over structured cyclic overlays."""
