"""The coordinator's key-value store, in which the nodes meet and leave their beats."""

import os
import socket
from datetime import timedelta

from torch.distributed import TCPStore as TCPStore  # type: ignore[attr-defined]

# The engine's newer server wants libuv, which its Windows builds lack.
USE_LIBUV = os.name != "nt"
# No call is meant to wait in the store: waits are polls, which this only backs up.
BACKSTOP = timedelta(hours=1)


def serve(opened: socket.socket) -> TCPStore:
    """The store itself, on a listening socket, which it takes over."""
    address, port = opened.getsockname()[:2]
    reached = {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(address, address)
    listen_fd: int | None = None
    if os.name == "nt":  # there the store has to open the port itself
        opened.close()
    else:
        listen_fd = opened.detach()
    return TCPStore(
        reached,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=BACKSTOP,
        master_listen_fd=listen_fd,
        use_libuv=USE_LIBUV,
    )


def connect(address: str, port: int) -> TCPStore:
    """A connection of its own to a store that is known to answer at this address."""
    return TCPStore(
        address, port, is_master=False, wait_for_workers=False, timeout=BACKSTOP, use_libuv=USE_LIBUV
    )
