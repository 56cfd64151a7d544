"""Trees: configuration, costs of swaps and homes, repairs."""
