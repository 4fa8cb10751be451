"""The addresses under which this machine can be reached, as links and as a QR code."""

import io
import ipaddress
from collections.abc import Mapping

import segno

from daisychain.base.errors import FleetError
from daisychain.cluster.fleet.network import route_address
from daisychain.room.groups import Address

ELSEWHERE = {4: "192.0.2.1", 6: "2001:db8::1"}  # documentation's: nothing is sent there
ANY = ("0.0.0.0", "::", "")


def local_addresses(interfaces: Mapping[str, list[str]]) -> list[str]:
    """This machine's addresses that others can reach, the one that its default route uses first, IPv4 first."""
    found: list[Address] = []
    for entries in interfaces.values():
        for text in entries:
            address = ipaddress.ip_address(text.partition("%")[0])
            if not (address.is_loopback or address.is_link_local or address.is_unspecified):
                found.append(address)
    first = {_routed(version) for version in ELSEWHERE}
    return [str(a) for a in sorted(found, key=lambda a: (a.version, str(a) not in first))]


def _routed(version: int) -> str:
    try:
        return route_address(ELSEWHERE[version], 9)
    except FleetError:
        return ""


def reachable(host: str, addresses: list[str]) -> list[str]:
    """Those of `addresses` under which a server bound to `host` answers."""
    if host == "0.0.0.0":
        return [address for address in addresses if ":" not in address]
    return addresses if host in ANY else [address for address in addresses if address == host]


def link(scheme: str, host: str, port: int) -> str:
    """The page's address."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"


def qr_code(text: str) -> str:
    """A QR code made of block characters, for a dark terminal."""
    picture = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(out=picture, compact=True, border=2)
    return picture.getvalue()
