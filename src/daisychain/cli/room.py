"""`daisychain room`: a page that turns every browser that opens it into a node."""

import datetime
import importlib.util
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.base.log import say
from daisychain.cluster.fleet.network import list_interfaces, open_listener

NEEDED = ("starlette", "uvicorn", "websockets", "cryptography", "segno")
STUN, TURN = ("stun:", "stuns:"), ("turn:", "turns:")


def room(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=1, max=65_535)] = limits.ROOM_PORT,
    https: Annotated[
        bool, typer.Option("--https", help="Serve HTTPS with a certificate of this machine's own.")
    ] = False,
    cert_dir: Annotated[
        Path | None, typer.Option(help="Where the certificate is kept; your data folder unless given.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(help="Address or network whose X-Forwarded-For is believed.")
    ] = None,
    stun: Annotated[list[str] | None, typer.Option(help="STUN server, such as stun:host:3478.")] = None,
    turn: Annotated[str | None, typer.Option(help="TURN server, such as turn:host:3478.")] = None,
    turn_user: Annotated[str | None, typer.Option()] = None,
    turn_password: Annotated[str | None, typer.Option(envvar="DAISY_TURN_PASSWORD")] = None,
    data: Annotated[str, typer.Option(help="Where text comes from: auto, embedded or fineweb-edu.")] = "auto",
    members: Annotated[
        int, typer.Option(min=2, max=limits.ROOM_MEMBERS, help="Devices a group.")
    ] = limits.ROOM_MEMBERS,
) -> None:
    """Serve the browser trainer: every browser on this network that opens the page becomes a node."""
    _require_extra()
    from daisychain.data.slices import TextSource
    from daisychain.room.groups import own_networks, trusted_networks
    from daisychain.room.links import link, local_addresses, reachable
    from daisychain.room.listen import RoomServer
    from daisychain.room.server import RoomSettings, create_app

    text = TextSource(data).text
    ice = _ice(stun or [], turn, turn_user, turn_password)
    trusted = trusted_networks(trusted_proxy or [])
    with open_listener(host, port) as listener:
        interfaces = list_interfaces()
        addresses = local_addresses(interfaces)
        certificate = _certificate(cert_dir, addresses) if https else None
        scheme = "https" if https else "http"
        links = [link(scheme, address, port) for address in reachable(host, addresses)]
        settings = RoomSettings(
            text,
            members,
            ice,
            trusted,
            own_networks(interfaces),
            links,
            certificate and certificate.authority_pem,
        )
        server = RoomServer(
            create_app(settings),
            certificate and certificate.server_file,
            lambda: _say_where(link(scheme, _here(host), port), links, certificate, data, members),
        )
        server.serve_until_ended(listener)
    say("\nThe room is closed. Devices that are linked go on training; nobody new can join.")


def _require_extra() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f'the browser room needs {", ".join(missing)}: run pip install "daisychain[room]"')


def _ice(stun: list[str], turn: str | None, user: str | None, password: str | None) -> list[dict[str, Any]]:
    """What browsers are told about servers that help them to find a way to each other."""
    for option, url, schemes in [*(("--stun", url, STUN) for url in stun), ("--turn", turn, TURN)]:
        if url is not None and not (url.startswith(schemes) and url.partition(":")[2]):
            raise ConfigError(f"{option} is {url!r}: give an address such as {schemes[0]}host:3478")
    if turn is None and (user or password):
        raise ConfigError("--turn-user and --turn-password are for a TURN server: give --turn too")
    if turn is not None and not (user and password):
        raise ConfigError(f"the TURN server {turn} needs --turn-user and --turn-password")
    servers: list[dict[str, Any]] = [{"urls": stun}] if stun else []
    return [*servers, {"urls": [turn], "username": user, "credential": password}] if turn else servers


def _certificate(folder: Path | None, addresses: list[str]) -> Any:
    from daisychain.base.files import user_data_folder
    from daisychain.room.https import credentials

    now = datetime.datetime.now(datetime.timezone.utc)
    return credentials(folder or user_data_folder() / "https", addresses, socket.gethostname(), now)


def _here(host: str) -> str:
    """The host's name in a link for this machine."""
    return "localhost" if host in ("0.0.0.0", "::", "127.0.0.1", "::1") else host


def _say_where(here: str, links: list[str], certificate: Any, data: str, members: int) -> None:
    say(f"this machine   {here}")
    for each in links:
        say(f"this network   {each}")
    say(
        f"groups         up to {members} devices; those of one network find each other, others need a room link"
    )
    say(f"text           {data}")
    if certificate:
        say(f"certificate    {certificate.state}: {certificate.server_file}")
        say(f"authority      {(links or [here])[0]}authority.crt lets a device trust it; its SHA-256 must be")
        say(f"               {certificate.fingerprint}")
    else:
        say("security       plain HTTP: training works; --https adds what browsers keep for secure pages")
    if links:
        _say_code(links[0])
    else:
        say("               other devices cannot open this page: listen on --host 0.0.0.0")
    say("Ctrl-C closes the room.")


def _say_code(url: str) -> None:
    from daisychain.room.links import qr_code

    picture = qr_code(url)
    try:
        picture.encode(sys.stderr.encoding or "ascii")
    except UnicodeEncodeError:
        say("               (this terminal cannot show a QR code)")
    else:
        say(f"\n{picture}\n{url}\n")
