"""A certificate of the server's own, for microphones on other machines: browsers give them to https pages only.

Owns one file in the user's cache folder: key and certificate in PEM, readable by nobody else. It is kept, so that a
fingerprint that was compared once stays true, and is made anew only when the machine has a name or an address that it lacks
(those it had before stay in it), when it ends soon, or when the file cannot be used. Two servers that start at once end
up with the same file: each puts a whole one in its place and reads what is there.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import socket
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from engines.model_store import cache_folder
from session_server.types.errors import ConfigError

FILE = "self_signed.pem"
_LIFE = datetime.timedelta(days=397)  # browsers refuse longer ones
_RENEW = datetime.timedelta(days=30)
_MAX_NAMES = 60
_DNS = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """Where it is, and whether it was made just now."""

    file: Path
    new: bool


def certificate_file() -> Path:
    """Where the certificate of this user is kept."""
    return cache_folder() / "tls" / FILE


def own_certificate(host: str, now: datetime.datetime, file: Path | None = None) -> OwnCertificate:
    """The kept certificate, or a new one; `host`: what the server listens on. Raises ConfigError."""
    file = file or certificate_file()
    wanted = names_of_this_machine(host)[:_MAX_NAMES]
    kept = _read(file)
    if kept is not None and kept.not_valid_after_utc - now > _RENEW:
        known = _names(kept)
        if set(wanted) <= set(known):
            return OwnCertificate(file, new=False)
        wanted += [name for name in known if name not in wanted]
    try:
        _write(file, _make(wanted[:_MAX_NAMES], now))
    except OSError as error:
        raise ConfigError(
            f"server.tls_self_signed: the certificate cannot be kept in {file.parent}: {error.strerror}"
        ) from None
    return OwnCertificate(file, new=True)


def names_of_this_machine(host: str) -> list[str]:
    """Names and addresses by which clients reach a server that listens on `host`; the unchanging ones first."""
    found = ["localhost", "127.0.0.1", "::1", host, socket.gethostname()]
    for addresses in psutil.net_if_addrs().values():
        found += [a.address for a in addresses if a.family in (socket.AF_INET, socket.AF_INET6)]
    return list(dict.fromkeys(_as_kept(name) for name in found if _usable(name)))


def _as_kept(name: str) -> str:
    """As a certificate gives it back: addresses have several spellings, and no zone in it."""
    try:
        return str(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        return name


def _usable(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return bool(_DNS.fullmatch(name))
    return not (address.is_unspecified or address.is_link_local)


def _make(names: list[str], now: datetime.datetime) -> bytes:
    """Key and certificate, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "session-server")])
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=False, crl_sign=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of other machines
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([_general(n) for n in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(entry.value) for entry in found]


def _read(file: Path) -> x509.Certificate | None:
    """The certificate that is kept; None: there is none, or the file cannot serve, or others may read it."""
    try:
        if os.name == "posix" and file.stat().st_mode & 0o077:
            return None
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, password="")
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError):
        return None


def _write(file: Path, pem: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=file.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(pem)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
