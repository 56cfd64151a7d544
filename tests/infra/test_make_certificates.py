"""The certificates of a local stack: who may read their keys."""

import stat
from pathlib import Path

from regraft.infra.local.make_certificates import LocalAuthority


def test_keys_are_for_this_user_only(tmp_path: Path) -> None:
    """No other user of the machine can read a key of the local stack, or find its authority's."""
    issued = LocalAuthority(tmp_path / "security").issue("server")
    for file in (issued.key_file, issued.both_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "security").stat().st_mode) == 0o700
    assert {file.name for file in (tmp_path / "security").iterdir()} == {
        *("ca.pem", "server.pem", "server-key.pem", "server-both.pem")
    }
