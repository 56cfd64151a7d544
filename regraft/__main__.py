"""Let ``python -m regraft`` do what the ``regraft`` command does."""

from regraft.cli import main

main()
