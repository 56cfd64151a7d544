"""Users whose ID has no entry in the list of users, as in many containers."""

import os
import pwd
from pathlib import Path

import pytest

from regraft.infra.find_cache import find_cache
from regraft.infra.find_user import find_user, require_listed_user
from regraft.infra.order_keys import OrderSettings
from regraft.infra.stack_error import StackError
from regraft.stages.run_loop import prepare_orders


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as a user whom neither the environment nor the system names."""

    def no_entry(number: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)


@pytest.mark.usefixtures("unlisted")
def test_a_user_without_a_name_is_called_by_the_id(tmp_path: Path) -> None:
    """Keys are made for that name, and orders are given in it."""
    assert find_user() == f"uid-{os.getuid()}"
    assert "made now" in prepare_orders(OrderSettings(directory=tmp_path))
    assert find_user() in "".join(file.read_text() for file in tmp_path.iterdir())


@pytest.mark.usefixtures("unlisted")
def test_what_needs_an_entry_or_a_home_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's libraries would end with a Java error about a null name."""
    with pytest.raises(StackError, match=r"no entry in /etc/passwd.*add a line such as `regraft:x:\d+:0:"):
        require_listed_user()
    monkeypatch.setattr("regraft.infra.find_cache.find_checkout", lambda: None)
    with pytest.raises(StackError, match="set REGRAFT_CACHE"):
        find_cache({})


def test_a_listed_user_is_called_by_name() -> None:
    """The user who runs these tests has an entry."""
    require_listed_user()
    assert find_user()
