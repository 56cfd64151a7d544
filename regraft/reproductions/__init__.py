"""The papers' evaluations again, with ours beside them."""
