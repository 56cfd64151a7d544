"""Set-up shared by the lab's tests."""

from hypothesis import settings

# A busy machine is not an error: no example fails because it is slow.
settings.register_profile("regraft_lab", deadline=None)
settings.load_profile("regraft_lab")
