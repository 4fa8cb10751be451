"""HTTPS of this machine's own: who trusts it, what it may vouch for, and when it is made anew."""

import datetime
import http.client
import ipaddress
import os
import ssl
import stat

import pytest
from cryptography import x509

from daisychain.base import limits
from daisychain.base.errors import ConfigError
from daisychain.room import https
from daisychain.room.https import Pair, credentials

from .room_help import PATIENCE_S, running

NOW = datetime.datetime.now(datetime.timezone.utc)
ADDRESSES = ["192.168.1.20", "203.0.113.5", "fd00::5"]


def make(folder, addresses=ADDRESSES, name="Old-Laptop.local", now=NOW):
    return credentials(folder, addresses, name, now)


def certificates(made):
    return x509.load_pem_x509_certificates(made.server_file.read_bytes())


def trusting(pem):
    return ssl.create_default_context(cadata=pem.decode())


def fetch(port, host, context):
    line = http.client.HTTPSConnection(host, port, context=context, timeout=PATIENCE_S)
    try:
        line.request("GET", "/authority.crt")
        answer = line.getresponse()
        return answer.headers["content-type"], answer.read()
    finally:
        line.close()


def test_who_trusts_the_authority_gets_in_and_nobody_else(tmp_path):
    made = make(tmp_path)
    with running(made) as (port, _):
        for host in ("127.0.0.1", "localhost"):
            kind, body = fetch(port, host, trusting(made.authority_pem))
            assert (kind, body) == ("application/x-x509-ca-cert", made.authority_pem)
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch(port, "127.0.0.1", ssl.create_default_context())
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch(port, "127.0.0.1", trusting(make(tmp_path / "other").authority_pem))


def test_the_certificate_holds_what_browsers_ask_for(tmp_path):
    made = make(tmp_path)
    server, authority = certificates(made)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "old-laptop", "old-laptop.local"]
    assert {*names.get_values_for_type(x509.IPAddress)} == {
        ipaddress.ip_address(a) for a in [*ADDRESSES, "127.0.0.1", "::1"]
    }
    assert server.not_valid_before_utc < NOW < server.not_valid_after_utc
    assert (server.not_valid_after_utc - server.not_valid_before_utc).days < 398
    server.verify_directly_issued_by(authority)
    assert made.fingerprint.count(":") == 31


def handshake(server_file, authority_pem, host):
    """A TLS handshake in memory; raises what a browser would refuse for."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(server_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting(authority_pem).wrap_bio(to_client, to_server, server_hostname=host)
    server = theirs.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize(
    ("host", "address"),
    [("example.org", None), ("evil.example", "192.168.1.20"), ("198.51.100.1", "198.51.100.1")],
)
def test_the_authority_can_vouch_for_nothing_else(tmp_path, host, address):
    made = make(tmp_path)
    handshake(made.server_file, made.authority_pem, "old-laptop.local")
    handshake(made.server_file, made.authority_pem, "192.168.1.20")
    handshake(made.server_file, made.authority_pem, "203.0.113.5")
    authority = https._read(tmp_path / https.AUTHORITY_FILE)
    forged = https._make_server(
        authority,
        [] if host == address else [host],
        [ipaddress.ip_address(address)] if address else [],
        NOW,
    )
    chain = authority.certificate.public_bytes(https.serialization.Encoding.PEM)
    (tmp_path / "forged.pem").write_bytes(https._pem(forged) + chain)
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        handshake(tmp_path / "forged.pem", made.authority_pem, host)


def test_files_are_for_their_owner_only(tmp_path):
    old = os.umask(0)
    try:
        make(tmp_path / "certificates")
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "certificates").iterdir()}
    assert modes == {https.AUTHORITY_FILE: 0o600, https.SERVER_FILE: 0o600}
    assert stat.S_IMODE((tmp_path / "certificates").stat().st_mode) == 0o700


def test_it_is_kept_while_it_fits(tmp_path):
    first = make(tmp_path)
    assert first.state == "made"
    later = NOW + datetime.timedelta(days=limits.CERTIFICATE_DAYS - limits.CERTIFICATE_RENEW_DAYS - 3)
    for again in (make(tmp_path), make(tmp_path, ADDRESSES[:1]), make(tmp_path, now=later)):
        assert again.state == "kept"
        assert certificates(again) == certificates(first)


@pytest.mark.parametrize(
    ("change", "reason", "same_authority"),
    [
        ({"addresses": ["192.168.1.21"]}, "addresses", True),
        ({"now": NOW + datetime.timedelta(days=limits.CERTIFICATE_DAYS - 10)}, "about to end", True),
        ({"now": NOW - datetime.timedelta(days=5)}, "clock", True),
        ({"name": "other"}, "authority", False),
        ({"addresses": ["198.51.100.9"]}, "authority", False),
        ({"now": NOW + datetime.timedelta(days=limits.AUTHORITY_DAYS - 100)}, "authority", False),
    ],
)
def test_it_is_renewed_when_it_no_longer_fits(tmp_path, change, reason, same_authority):
    first, second = make(tmp_path), make(tmp_path, **change)
    assert second.state.startswith("renewed: ")
    assert reason in second.state
    assert (second.authority_pem == first.authority_pem) is same_authority
    assert make(tmp_path, **change).state == "kept"


@pytest.mark.parametrize("name", [https.AUTHORITY_FILE, https.SERVER_FILE])
@pytest.mark.parametrize("content", [b"", b"nonsense", "certificate only", "key of another"])
def test_a_file_of_something_else_is_left_alone(tmp_path, name, content):
    make(tmp_path)
    path = tmp_path / name
    pair = https._read(path)
    if content == "certificate only":
        content = pair.certificate.public_bytes(https.serialization.Encoding.PEM)
    elif content == "key of another":
        content = https._pem(Pair(https.ec.generate_private_key(https.ec.SECP256R1()), pair.certificate))
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{name}.*--cert-dir"):
        make(tmp_path)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="--cert-dir"):
        make(tmp_path / "file")


@pytest.mark.parametrize("name", ["localhost", "müsli", "a" * 80, "", "x_y", "host.example.org"])
def test_any_host_name_gives_a_certificate(tmp_path, name):
    made = make(tmp_path, name=name)
    handshake(made.server_file, made.authority_pem, "localhost")
