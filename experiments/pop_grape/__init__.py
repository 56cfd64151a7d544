"""Cheung09 again: the evaluation of publisher relocation by POP and GRAPE, with ours. See README.md."""
