"""What counts as one address when pages are counted."""

import pytest

from regraft.dashboard.web_app import site_of


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_one_site_counts_as_one_address(host: str, site: str) -> None:
    """IPv4 by address, also when mapped to IPv6; IPv6 by network, as one machine may use any address in it."""
    assert site_of(host) == site
