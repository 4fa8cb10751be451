"""The choice of an address, and ports."""

import os
import socket

import pytest

from daisychain.base.errors import ConfigError, FleetError
from daisychain.cluster.fleet.network import (
    choose_address,
    is_loopback,
    list_interfaces,
    open_free_port,
    open_port,
    port_owner,
    route_address,
)

INTERFACES = {
    "lo": ["127.0.0.1", "::1"],
    "eth0": ["fd00::5", "192.168.1.5"],
    "wg0": ["10.9.0.5"],
}


def routed(address: str):  # type: ignore[no-untyped-def]
    return lambda host, port: address


def test_the_route_decides() -> None:
    choice = choose_address("10.9.0.1", 1, interfaces=INTERFACES, route=routed("10.9.0.5"))
    assert (choice.address, choice.interface) == ("10.9.0.5", "wg0")
    assert str(choice) == "10.9.0.5 on wg0: the route to 10.9.0.1"
    choice = choose_address("fd00::1", 1, interfaces=INTERFACES, route=routed("fd00::5"))
    assert choice.interface == "eth0"
    choice = choose_address("daisy", 1, interfaces=INTERFACES, route=routed("127.0.1.1"))
    assert choice.interface == "lo"


def test_what_is_given_wins() -> None:
    given = choose_address(
        "x", 1, address="10.9.0.5", interface="eth0", interfaces=INTERFACES, route=routed("no")
    )
    assert (given.address, given.interface) == ("10.9.0.5", "wg0")
    named = choose_address("x", 1, interface="eth0", interfaces=INTERFACES, route=routed("no"))
    assert named.address == "192.168.1.5"


def test_what_this_machine_lacks_is_refused_with_what_it_has() -> None:
    with pytest.raises(ConfigError, match=r"'eth9'.*lo \(127.0.0.1\), eth0 \(192.168.1.5\), wg0"):
        choose_address("x", 1, interface="eth9", interfaces=INTERFACES)
    with pytest.raises(ConfigError, match=r"10\.1\.1\.1 is not one of this machine.*wg0"):
        choose_address("x", 1, address="10.1.1.1", interfaces=INTERFACES)


def test_routes_of_this_machine() -> None:
    assert route_address("127.0.0.1", 9) == "127.0.0.1"
    with pytest.raises(FleetError, match=r"'no-such-host.invalid' cannot be resolved"):
        route_address("no-such-host.invalid", 9)
    assert any("127.0.0.1" in addresses for addresses in list_interfaces().values())


def test_loopback_is_known_without_asking() -> None:
    assert all(map(is_loopback, ["127.0.1.1", "::1", "localhost"]))
    assert not any(map(is_loopback, ["10.0.0.1", "fe80::1%eth0", "pc"]))


@pytest.mark.parametrize("address", ["", "127.0.0.1"])
def test_a_busy_port_is_refused_with_its_owner_or_moved_from(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_port(address, 0) as opened:
        port = opened.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        assert f"(pid {os.getpid()})" in str(port_owner(port))
        with pytest.raises(ConfigError, match=rf"^port {port} is in use by .*\(pid {os.getpid()}\)"):
            open_port(address, port)
        with open_free_port(address, port) as other:
            moved = other.getsockname()[1]
        assert moved != port
        assert f"port {port} is in use by" in (said := capsys.readouterr().err)
        assert f"this run takes {moved}" in said
    assert port_owner(port) is None
    with open_free_port(address, port) as again:
        assert again.getsockname()[1] == port
    assert capsys.readouterr().err == ""
