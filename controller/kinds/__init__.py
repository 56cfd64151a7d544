"""The kinds of overlay, as the controller sees them: one folder each, and the one place that chooses between them."""
