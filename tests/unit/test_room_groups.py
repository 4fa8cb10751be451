"""Whose devices are grouped: the address as the far end sees it, and nobody's word but a trusted proxy's."""

import pytest

from daisychain.base.errors import ConfigError
from daisychain.room.groups import LOCAL_GROUP, locate, own_networks, trusted_networks

PROXY = trusted_networks(["127.0.0.1", "10.1.0.0/16"])


def group(peer, forwarded="", trusted=(), proxied=None):
    return locate(peer, forwarded, bool(forwarded) if proxied is None else proxied, trusted).group


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("192.168.1.5", "192.168.77.9"),
        ("192.168.1.5", "10.3.2.1"),
        ("127.0.0.1", "192.168.1.5"),
        ("::1", "172.31.0.1"),
        ("fe80::1%eth0", "fd12::1"),
        ("169.254.3.4", "::ffff:192.168.1.5"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"),
    ],
)
def test_neighbours_share_a_group(one: str, other: str) -> None:
    assert group(one) == group(other) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("203.0.113.9", "203.0.113.8"),
        ("203.0.113.9", "192.168.1.5"),
        ("172.32.0.1", "172.16.0.1"),
        ("100.64.0.1", "100.64.0.2"),
        ("2001:db8:1:2::1", "2001:db8:1:3::1"),
        ("::ffff:203.0.113.9", "::ffff:203.0.113.8"),
    ],
)
def test_strangers_do_not(one: str, other: str) -> None:
    assert group(one) != group(other)


def test_a_header_from_nobody_trusted_changes_nothing() -> None:
    plain = locate("203.0.113.9", "", False, PROXY)
    for header in ("192.168.1.5", "198.51.100.1", "127.0.0.1, 10.1.0.1", "x", ",,"):
        assert locate("203.0.113.9", header, True, PROXY) == plain


@pytest.mark.parametrize("header", ["198.51.100.1", "192.168.1.5", "unknown", ""])
def test_strangers_behind_a_proxy_that_is_not_trusted_are_grouped_with_nobody(header: str) -> None:
    assert group("127.0.0.1", header, (), proxied=True) is None
    assert group("192.168.1.1", header, (), proxied=True) is None


def test_the_header_is_read_from_the_right_over_trusted_hops() -> None:
    assert group("127.0.0.1", "203.0.113.9", PROXY) == group("203.0.113.9")
    assert group("127.0.0.1", "203.0.113.9, 10.1.0.7", PROXY) == group("203.0.113.9")
    assert group("127.0.0.1", "203.0.113.9:4711", PROXY) == group("203.0.113.9")
    assert group("127.0.0.1", "[2001:db8::7]:4711 , 10.1.9.9", PROXY) == group("2001:db8::1")
    spoofed = "192.168.1.5, 127.0.0.1, 203.0.113.9"
    assert group("127.0.0.1", spoofed, PROXY) == group("203.0.113.9")
    assert group("127.0.0.1", "192.168.1.5", PROXY) == group("192.168.9.9")


@pytest.mark.parametrize("header", ["unknown", "", "1.2.3", "203.0.113.9 198.51.100.1", "203.0.113.9,", "é"])
def test_a_trusted_proxy_that_says_nothing_usable_hides_its_clients(header: str) -> None:
    assert group("127.0.0.1", header, PROXY, proxied=True) is None


def test_a_malformed_entry_stops_the_walk() -> None:
    assert group("127.0.0.1", "203.0.113.9, nonsense, 10.1.0.7", PROXY) == group("10.1.0.7")


def test_who_asks_the_trusted_machine_itself_is_local() -> None:
    assert group("127.0.0.1", "", PROXY) == group("192.168.1.5")


def test_the_servers_own_addresses_are_local() -> None:
    own = own_networks({"lo": ["127.0.0.1"], "eth0": ["203.0.113.9", "2001:db8::9", "fe80::1%eth0"]})
    for address in ("203.0.113.9", "2001:db8::9", "::ffff:203.0.113.9", "127.0.0.1"):
        assert locate(address, "", False, (), own).group == LOCAL_GROUP
        assert locate(address, "198.51.100.1", True, (), own).group is None  # a proxy of this machine
    for address in ("203.0.113.8", "2001:db8::8"):
        assert locate(address, "", False, (), own).group == group(address) != LOCAL_GROUP
    assert locate("127.0.0.1", "203.0.113.9", True, PROXY, own).group == LOCAL_GROUP


def test_counts_are_kept_by_address_not_by_group() -> None:
    keys = {locate(peer, "", False, ()).key for peer in ("192.168.1.5", "192.168.1.6", "2001:db8::1")}
    assert len(keys) == 3
    assert locate("2001:db8::1", "", False, ()).key == locate("2001:db8::2", "", False, ()).key


def test_an_address_that_is_none_is_grouped_with_nobody() -> None:
    assert group("", proxied=False) is None
    assert group("testclient", "203.0.113.9", PROXY) is None


def test_a_trusted_proxy_is_an_address() -> None:
    with pytest.raises(ConfigError, match=r"--trusted-proxy 'proxy\.local' is no address"):
        trusted_networks(["proxy.local"])
