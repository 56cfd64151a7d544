"""Reproduction of Cheung09: the evaluation of publisher relocation by POP and GRAPE, with ours. See README.md."""
