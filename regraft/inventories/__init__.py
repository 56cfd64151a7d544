"""Make and check inventories, and what each machine with a node needs, for ``regraft inventory`` and ``nodes``."""
