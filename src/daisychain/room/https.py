"""HTTPS on a local network: an authority of this machine's own, and a certificate for its addresses.

The authority may only vouch for local addresses, localhost, `.local` names, and this machine's name and
addresses, so that a phone that trusts it trusts it for nothing else.
"""

import contextlib
import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.room.groups import LOCAL, Address, is_within

#: 100.64.0.0/10 is where mesh VPNs put their machines.
PERMITTED = (*LOCAL, ipaddress.ip_network("100.64.0.0/10"))
LOCAL_NAMES = ("localhost", "local")
AUTHORITY_FILE = "authority.pem"  # key and certificate in one file, so that they cannot come from two writers
SERVER_FILE = "server.pem"  # key, certificate, and the authority's certificate
CLOCK_SLACK = datetime.timedelta(days=1)  # a phone's clock may be behind


@dataclass(frozen=True)
class Pair:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


@dataclass(frozen=True)
class Credentials:
    """What HTTPS needs. `state` says what was done: made, renewed because of something, or kept."""

    server_file: Path
    authority_pem: bytes
    fingerprint: str  # SHA-256 of the authority's certificate, as devices show it
    state: str


def credentials(
    folder: Path, addresses: Sequence[str], host_name: str, now: datetime.datetime
) -> Credentials:
    """The certificate in `folder` for these addresses; made where there is none, renewed where it no longer fits.

    Raises ConfigError for a folder that cannot be written, and for files that this function did not write.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made ({error.strerror}): choose another --cert-dir") from None
    names = _names(host_name)
    hosts = sorted({ipaddress.ip_address(a) for a in [*addresses, "127.0.0.1", "::1"]}, key=str)
    authority = _read(folder / AUTHORITY_FILE)
    if authority is None or _authority_unfit(authority, names, hosts, now):
        authority = _make_authority(names, hosts, now)
        _write_private(folder / AUTHORITY_FILE, _pem(authority))
    server = _read(folder / SERVER_FILE)
    reason = "made" if server is None else _server_unfit(server, authority, names, hosts, now)
    if reason:
        server = _make_server(authority, names, hosts, now)
        chain = authority.certificate.public_bytes(serialization.Encoding.PEM)
        _write_private(folder / SERVER_FILE, _pem(server) + chain)
    digest = authority.certificate.fingerprint(hashes.SHA256()).hex(":").upper()
    pem = authority.certificate.public_bytes(serialization.Encoding.PEM)
    return Credentials(folder / SERVER_FILE, pem, digest, reason or "kept")


def _names(host_name: str) -> list[str]:
    """The DNS names of this machine; a name that no certificate can hold is left out."""
    labels = host_name.lower().removesuffix(".local")
    known = labels.isascii() and all(part.replace("-", "a").isalnum() for part in labels.split("."))
    return ["localhost", *([labels, f"{labels}.local"] if known and labels != "localhost" else [])]


def _permitted(names: Sequence[str], hosts: Sequence[Address]) -> list[x509.GeneralName]:
    """What the authority may vouch for."""
    own = [ipaddress.ip_network(host) for host in hosts if not is_within(host, PERMITTED)]
    plain = {name for name in names if not name.endswith(".local")}
    return [
        *(x509.DNSName(name) for name in sorted({*LOCAL_NAMES, *plain})),
        *(x509.IPAddress(network) for network in (*PERMITTED, *own)),
    ]


def _authority_unfit(
    authority: Pair, names: Sequence[str], hosts: Sequence[Address], now: datetime.datetime
) -> bool:
    constraints = authority.certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    covered = set(_permitted(names, hosts)) <= set(constraints.permitted_subtrees or [])
    days_left = (authority.certificate.not_valid_after_utc - now).days
    return not covered or days_left < limits.CERTIFICATE_DAYS


def _server_unfit(
    server: Pair, authority: Pair, names: Sequence[str], hosts: Sequence[Address], now: datetime.datetime
) -> str:
    """Why a new certificate is needed; empty where the old one does."""
    held = server.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    try:
        server.certificate.verify_directly_issued_by(authority.certificate)
    except (InvalidSignature, ValueError, TypeError):
        return "renewed: the authority is a new one"
    if not {*names} <= {*held.get_values_for_type(x509.DNSName)}:
        return "renewed: this machine's name has changed"
    if not {*hosts} <= {*held.get_values_for_type(x509.IPAddress)}:
        return "renewed: this machine's addresses have changed"
    if (server.certificate.not_valid_after_utc - now).days < limits.CERTIFICATE_RENEW_DAYS:
        return "renewed: the old one was about to end"
    return "renewed: the clock was set back" if server.certificate.not_valid_before_utc > now else ""


def _make_authority(names: Sequence[str], hosts: Sequence[Address], now: datetime.datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"DaisyChain on {names[-1]}")
    builder = (
        _builder(key, name, name, now, limits.AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.NameConstraints(_permitted(names, hosts), None), critical=True)
    )
    return Pair(key, builder.sign(key, hashes.SHA256()))


def _make_server(
    authority: Pair, names: Sequence[str], hosts: Sequence[Address], now: datetime.datetime
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    holder = [*(x509.DNSName(name) for name in names), *(x509.IPAddress(host) for host in hosts)]
    about = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(key, _name("DaisyChain room"), authority.certificate.subject, now, limits.CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(holder), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(about), critical=False)
    )
    return Pair(key, builder.sign(authority.key, hashes.SHA256()))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _builder(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    """`days` in all, the day before now among them."""
    start = now - CLOCK_SLACK
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _read(path: Path) -> Pair | None:
    """A key and its certificate; None where there is no file. Raises ConfigError for any other file."""
    try:
        pem = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): choose another --cert-dir") from None
    try:
        key = serialization.load_pem_private_key(pem, password=None)
        certificate = x509.load_pem_x509_certificates(pem)[0]
        certificate.extensions.get_extension_for_class(
            x509.NameConstraints if path.name == AUTHORITY_FILE else x509.SubjectAlternativeName
        )
    except (ValueError, TypeError, IndexError, x509.ExtensionNotFound):
        raise ConfigError(
            f"{path} holds no key and certificate of DaisyChain: move it away, or choose another --cert-dir"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(
            f"the key in {path} is not its certificate's: move the file away, or choose another --cert-dir"
        )
    return Pair(key, certificate)


def _pem(pair: Pair) -> bytes:
    key = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key + pair.certificate.public_bytes(serialization.Encoding.PEM)


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise ConfigError(f"{path} cannot be written ({error.strerror}): choose another --cert-dir") from None
