"""``python -m regraft_lab`` is ``regraft-lab``."""

from regraft_lab.lab_command import main

main()
