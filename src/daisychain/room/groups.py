"""Which devices are neighbours: an address as the far end of the network sees it, and its group."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from daisychain.base.errors import ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Addresses that only mean something on this side of a router: their owners are one group.
LOCAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "::1/128",
            "fe80::/10",
            "fc00::/7",
        ),
    )
)
LOCAL_GROUP = "local"
NEIGHBOUR_BITS = 64  # of an IPv6 address: one home or one office


@dataclass(frozen=True)
class Client:
    """Where a connection comes from. `group` is None where that cannot be known: then it is grouped with nobody."""

    key: str  # what is counted against limits
    group: str | None


def trusted_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """The proxies whose word is taken. Raises ConfigError for what is no address or network."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            raise ConfigError(
                f"--trusted-proxy {text!r} is no address or network: give one such as 127.0.0.1 or 10.0.0.0/8"
            ) from None
    return tuple(found)


def own_networks(interfaces: Mapping[str, Sequence[str]]) -> tuple[Network, ...]:
    """This machine's addresses, by interface, as networks of one address: who comes from there is local."""
    texts = (text.partition("%")[0] for addresses in interfaces.values() for text in addresses)
    return tuple(map(ipaddress.ip_network, texts))


def locate(
    peer: str, forwarded: str, proxied: bool, trusted: Sequence[Network], own: Sequence[Network] = ()
) -> Client:
    """Where a request comes from.

    `peer` is the address of the connection itself, `forwarded` the whole X-Forwarded-For header, which is read
    from its right end and only over trusted hops; `proxied` says that some header shows a proxy at work.
    `own` are the addresses of this machine.
    """
    direct = address = _address(peer)
    if direct is None or address is None:
        return Client("unknown", None)
    hops = forwarded.split(",") if forwarded else []
    while hops and is_within(address, trusted):
        hop = _address(hops.pop())
        if hop is None:
            break
        address = hop
    local = [*LOCAL, *own]
    # Everyone behind a proxy that does not say for whom it speaks would look like one neighbour.
    hidden = proxied and address == direct and is_within(direct, [*trusted, *local])
    group = LOCAL_GROUP if is_within(address, local) else _neighbourhood(address)
    return Client(_neighbourhood(address), None if hidden else group)


def is_within(address: Address, networks: Sequence[Network]) -> bool:
    """Whether one of the networks holds the address."""
    return any(address in network for network in networks)


def _address(text: str) -> Address | None:
    """An address as text, with a port or without; None for anything else."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _neighbourhood(address: Address) -> str:
    bits = NEIGHBOUR_BITS if address.version == 6 else 32
    return str(ipaddress.ip_network(f"{address}/{bits}", strict=False))
