"""Which cluster this node belongs to: the environment interface (FEATURES P12)."""

from collections.abc import Mapping
from dataclasses import dataclass

from daisychain.base import limits
from daisychain.base.errors import ConfigError

LISTEN_FD = "DAISY_LISTEN_FD"  # set by the local launcher: the coordinator's port, already open


@dataclass(frozen=True)
class NodeSettings:
    """One node of a cluster. `interface` and `address` are None where the route decides."""

    master_address: str
    master_port: int
    world_size: int
    rank: int
    interface: str | None = None
    address: str | None = None
    listen_fd: int | None = None


def cluster_from_environment(
    env: Mapping[str, str],
    *,
    master_address: str | None = None,
    master_port: int | None = None,
    world_size: int | None = None,
    rank: int | None = None,
    interface: str | None = None,
    address: str | None = None,
) -> NodeSettings | None:
    """The cluster named by MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK and GLOO_SOCKET_IFNAME.

    A keyword that is not None wins over its variable. None where nothing names a cluster. Raises ConfigError
    naming the variable, its value and what is allowed.
    """
    given = {
        "MASTER_ADDR": master_address if master_address is not None else env.get("MASTER_ADDR"),
        "WORLD_SIZE": world_size if world_size is not None else env.get("WORLD_SIZE"),
        "RANK": rank if rank is not None else env.get("RANK"),
    }
    missing = [name for name, value in given.items() if value in (None, "")]
    if len(missing) == len(given):
        return None
    if missing:
        present = ", ".join(f"{name}={value}" for name, value in given.items() if name not in missing)
        raise ConfigError(
            f"{' and '.join(missing)} not set, while {present}: "
            "a node of a cluster needs MASTER_ADDR, WORLD_SIZE and RANK"
        )
    port = master_port if master_port is not None else env.get("MASTER_PORT") or limits.DEFAULT_PORT
    size = _integer("WORLD_SIZE", given["WORLD_SIZE"], 1, limits.MAX_NODES)
    listen_fd = env.get(LISTEN_FD)
    return NodeSettings(
        master_address=_address("MASTER_ADDR", str(given["MASTER_ADDR"])),
        master_port=_integer("MASTER_PORT", port, 1, 65_535),
        world_size=size,
        rank=_integer("RANK", given["RANK"], 0, size - 1),
        interface=interface or env.get("GLOO_SOCKET_IFNAME") or None,
        address=address or None,
        listen_fd=None if listen_fd is None else _integer(LISTEN_FD, listen_fd, 0, 1 << 20),
    )


def _integer(name: str, value: object, least: int, most: int) -> int:
    text = str(value).strip()
    if text.lstrip("-").isdecimal() and text.isascii() and least <= int(text) <= most:
        return int(text)
    raise ConfigError(f"{name} is {value!r}: a whole number from {least} to {most} is needed")


def _address(name: str, value: str) -> str:
    text = value.strip().removeprefix("[").removesuffix("]")
    if not text or any(character.isspace() or character == "/" for character in text):
        raise ConfigError(
            f"{name} is {value!r}: a host name or an IP address is needed, without port or scheme"
        )
    return text
