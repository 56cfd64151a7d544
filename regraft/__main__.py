"""Make ``python -m regraft`` run the ``regraft`` command."""

from regraft.cli import main

main()
