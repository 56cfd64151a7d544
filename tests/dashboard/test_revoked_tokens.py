"""The file of revoked tokens: an entry takes effect at once, and an unreadable file lets nobody in."""

import os
from pathlib import Path

import pytest

from regraft.dashboard.revoked_tokens import REVOKED_BYTES_MAX, RevokedFileError, RevokedTokens, revoke_token

ONE, TWO = "0123456789abcdef", "fedcba9876543210"


def test_a_revoked_token_is_seen_without_a_restart(tmp_path: Path) -> None:
    """The file and its directory may be created later, and the file is read again when it has changed."""
    file = tmp_path / "later" / "revoked.txt"
    revoked = RevokedTokens(file)
    assert ONE not in revoked
    assert revoke_token(file, ONE)
    assert ONE in revoked
    assert TWO not in revoked
    assert revoke_token(file, TWO)
    assert not revoke_token(file, ONE)
    assert {ONE, TWO} == {each for each in (ONE, TWO) if each in revoked}
    assert len(file.read_text().splitlines()) == 2


def test_people_may_edit_the_file(tmp_path: Path) -> None:
    """Empty lines and comments after an id are ignored; a token whose line is removed is no longer revoked."""
    file = tmp_path / "revoked.txt"
    revoked = RevokedTokens(file)
    file.write_text(f"\n  {ONE}  Ana's laptop was stolen\n\n{TWO}\n")
    assert ONE in revoked
    file.write_text(f"{TWO}\n")
    assert ONE not in revoked
    assert TWO in revoked


def test_a_last_line_without_an_end_is_completed(tmp_path: Path) -> None:
    """Otherwise two ids became one, and neither token was revoked."""
    file = tmp_path / "revoked.txt"
    file.write_text(ONE)
    assert revoke_token(file, TWO)
    assert {ONE, TWO} == {each for each in (ONE, TWO) if each in RevokedTokens(file)}


def test_a_line_that_a_full_disk_cut_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of it is no id, and the next revocation is complete."""
    file, write = tmp_path / "revoked.txt", os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:10]))
        with pytest.raises(RevokedFileError, match="NOT revoked"):
            revoke_token(file, ONE)
    assert revoke_token(file, ONE)
    assert ONE in RevokedTokens(file)


def test_a_deleted_file_readmits_no_token(tmp_path: Path) -> None:
    """Deleting the file does not make a stolen token valid again."""
    file = tmp_path / "revoked.txt"
    revoke_token(file, ONE)
    revoked = RevokedTokens(file)
    assert ONE in revoked
    file.unlink()
    assert ONE in revoked


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x" * (REVOKED_BYTES_MAX + 1)])
def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path, content: bytes) -> None:
    """It is unknown then which tokens are valid: the check raises an error."""
    file = tmp_path / "revoked.txt"
    file.write_bytes(content)
    with pytest.raises(RevokedFileError, match=r"revoked\.txt"):
        assert ONE in RevokedTokens(file)


def test_a_token_that_could_not_be_revoked_is_reported(tmp_path: Path) -> None:
    """For example, if a directory is in the file's place."""
    with pytest.raises(RevokedFileError, match=os.fspath(tmp_path)):
        revoke_token(tmp_path, ONE)
