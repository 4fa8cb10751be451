"""Which address of this machine the other nodes are told, and which port is free.

The engine would take the address of the host name, which many systems map to 127.0.1.1. Here the route to the
coordinator decides: the kernel is asked which address it would send from.
"""

import errno
import ipaddress
import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

import psutil

from daisychain.base import limits
from daisychain.base.errors import ConfigError, FleetError
from daisychain.base.log import say

BACKLOG = 1_024  # more than all nodes dialling at once
Interfaces = Mapping[str, list[str]]  # interface name → its IP addresses


@dataclass(frozen=True)
class Choice:
    """An address of this machine, its interface, and why it was chosen."""

    address: str
    interface: str
    reason: str

    def __str__(self) -> str:
        return f"{self.address} on {self.interface}: {self.reason}"


def list_interfaces() -> dict[str, list[str]]:
    """Every interface of this machine and its IPv4 and IPv6 addresses."""
    families = (socket.AF_INET, socket.AF_INET6)
    found = {
        name: [entry.address for entry in entries if entry.family in families]
        for name, entries in psutil.net_if_addrs().items()
    }
    return {name: addresses for name, addresses in found.items() if addresses}


def route_address(host: str, port: int) -> str:
    """The address from which this machine would send to `host`. Nothing is sent.

    Raises FleetError where the name is unknown or there is no route.
    """
    try:
        targets = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise FleetError(f"the address {host!r} cannot be resolved ({error}): check MASTER_ADDR") from None
    reasons = []
    for family, kind, protocol, _, target in targets:
        with closing(socket.socket(family, kind, protocol)) as probe:
            try:
                probe.connect(target)
            except OSError as error:
                reasons.append(str(error))
                continue
            return socket.getnameinfo(probe.getsockname(), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
    raise FleetError(f"this machine has no route to {host} ({reasons[0]}): check MASTER_ADDR and the network")


def choose_address(
    host: str,
    port: int,
    *,
    interface: str | None = None,
    address: str | None = None,
    interfaces: Interfaces | None = None,
    route: Callable[[str, int], str] = route_address,
) -> Choice:
    """The address of this machine that the other nodes are told.

    An explicit `address` wins, then an explicit `interface`, then the route to the coordinator at `host`.
    Raises ConfigError for an address or interface that this machine does not have.
    """
    known = list_interfaces() if interfaces is None else interfaces
    if address is not None:
        return Choice(address, _interface_of(address, known), "the address given")
    if interface is not None:
        if interface not in known:
            raise ConfigError(f"GLOO_SOCKET_IFNAME is {interface!r}: this machine has {_listed(known)}")
        return Choice(_first(known[interface]), interface, "the interface given (GLOO_SOCKET_IFNAME)")
    routed = route(host, port)
    return Choice(routed, _interface_of(routed, known), f"the route to {host}")


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `address`. A name other than localhost is not looked up."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"


def _interface_of(address: str, known: Interfaces) -> str:
    for name, addresses in known.items():
        if address in addresses:
            return name
    if is_loopback(address):  # all of 127.0.0.0/8 is this machine, though only 127.0.0.1 is listed
        return next(
            (name for name, addresses in known.items() if any(map(is_loopback, addresses))), "loopback"
        )
    raise ConfigError(f"the address {address} is not one of this machine: it has {_listed(known)}")


def _first(addresses: list[str]) -> str:
    """IPv4 first, as the most likely to be shared by every node."""
    return min(addresses, key=lambda address: ":" in address)


def _listed(known: Interfaces) -> str:
    return ", ".join(f"{name} ({_first(addresses)})" for name, addresses in known.items())


def open_port(address: str, port: int) -> socket.socket:
    """A listening socket; `address` "" means every address of this machine.

    Raises ConfigError naming the program that has the port.
    """
    try:
        return _listen(address, port)
    except OSError as error:
        owner = port_owner(port)
        reason = (
            f"is in use by {owner}" if owner else f"cannot be opened on {address or 'this machine'} ({error})"
        )
        raise ConfigError(
            f"port {port} {reason}: end that program, or set another MASTER_PORT on every node"
        ) from None


def open_free_port(address: str, preferred: int) -> socket.socket:
    """A listening socket on the preferred port, or, where that is busy, on another; which is said."""
    try:
        return open_port(address, preferred)
    except ConfigError:
        opened = open_port(address, 0)
        say(
            f"port {preferred} is in use by {port_owner(preferred) or 'another program'}: "
            f"this run takes {opened.getsockname()[1]}"
        )
        return opened


def _listen(address: str, port: int) -> socket.socket:
    # create_server sets SO_REUSEADDR where that means "despite old connections", and not on Windows, where it
    # would mean "despite another server".
    if address == "" and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise  # otherwise IPv6 is switched off on this machine
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=BACKLOG)


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket for a page. Raises ConfigError naming who has the port, or the address that is not this
    machine's."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(
            address, family=family, dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6()
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            owner = port_owner(port) or "another program"
            raise ConfigError(
                f"port {port} is in use by {owner}: end that program, or choose another --port"
            ) from None
        raise ConfigError(
            f"{host} port {port} cannot be listened on ({error.strerror or error}): "
            "--host is an address of this machine, or 0.0.0.0 for all of them"
        ) from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        unsent_ms = int(limits.ROOM_UNSENT_LIMIT_S * 1_000)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unsent_ms)
    return listener


def own_urls(host: str, port: int, interfaces: Interfaces | None = None) -> list[str]:
    """Where other machines find a page that listens on `host`; nowhere if only this machine does."""
    if is_loopback(host):
        return []
    known = list_interfaces() if interfaces is None else interfaces
    everywhere = host in ("0.0.0.0", "::")
    addresses = [a for each in known.values() for a in each] if everywhere else [host]
    usable = [a for a in addresses if not is_loopback(a) and not a.lower().startswith("fe80")]
    return [
        f"http://{f'[{a}]' if ':' in a else a}:{port}"
        for a in sorted(usable, key=lambda a: ":" in a)
        if host != "0.0.0.0" or ":" not in a
    ]


def port_owner(port: int) -> str | None:
    """Program and pid that listen on a TCP port, as far as this user may see; None where nobody is seen."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
            if connection.pid is None:
                return "a program of another user"
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.Error:
                return f"pid {connection.pid}"
    return None
