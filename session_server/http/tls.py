"""TLS for the server and for our own clients, and the server's own certificate.

A certificate is the user's (`server.tls_cert`, `server.tls_key`) or the server's own
(`server.tls_self_signed`), for microphones on other machines, which browsers give to https pages
only. Clients trust the system's authorities and, beside them, the certificate that this user's
server keeps on this machine.

Owns one file in the user's cache folder: key and certificate in PEM, readable by the user only. It
is kept, so that a fingerprint that was compared once stays true, and is made anew only when the
machine has a name or an address that it lacks (those it had before stay in it), when it ends soon,
or when the file cannot be used. Two servers that start at once end up with the same file: each puts
a whole one in its place and reads what is there.

Errors: a certificate or key that cannot be used is a ConfigError that names the setting.
"""

from __future__ import annotations

import datetime
import hashlib
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

from engines.model_store.store import cache_folder
from session_server.config import Config
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


_CERTIFICATE, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Tls:
    """What the server listens with. `fingerprint`: SHA-256 of the certificate, as browsers show it."""

    context: ssl.SSLContext
    certificate: Path
    fingerprint: str
    self_signed: bool
    new: bool = False

    def to_itself(self) -> ssl.SSLContext:
        """For a client in the server's own process: this certificate and no other, whatever names are in it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(self.certificate)
        return context


def server_tls(config: Config) -> Tls | None:
    """TLS as configured; None: plain HTTP. Raises ConfigError."""
    server = config.server
    if server.tls_cert is not None:
        certificate = Path(server.tls_cert).expanduser()
        key = None if server.tls_key is None else Path(server.tls_key).expanduser()
        return _tls(certificate, key, self_signed=False)
    if server.tls_self_signed:
        own = own_certificate(server.host, datetime.datetime.now(datetime.UTC))
        return _tls(own.file, None, self_signed=True, new=own.new)
    return None


def client_tls(certificate: Path | None = None) -> ssl.SSLContext:
    """For a client: the system's authorities, this user's own certificate, and `certificate`. Raises ConfigError."""
    context = ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    own = certificate_file()
    if own.is_file():
        context.load_verify_locations(own)
    if certificate is not None:
        try:
            context.load_verify_locations(certificate)
        except OSError as error:  # SSLError among them
            raise ConfigError(f"{certificate}: not a certificate in PEM: {_why(error)}") from None
    return context


def _tls(certificate: Path, key: Path | None, *, self_signed: bool, new: bool = False) -> Tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    pem = _read_pem(certificate, "server.tls_cert")
    private = pem if key is None else _read_pem(key, "server.tls_key")
    at = "server.tls_cert" if key is None else "server.tls_key"
    if _CERTIFICATE not in pem:
        raise ConfigError(f"server.tls_cert: {certificate}: there is no certificate in it (PEM)")
    if "PRIVATE KEY-----" not in private:
        hint = "" if key is not None else "; server.tls_key names another file"
        raise ConfigError(f"{at}: {key or certificate}: there is no key in it (PEM){hint}")
    try:
        # an empty password: a key that has one is refused here instead of asked for on the terminal
        context.load_cert_chain(certificate, key, password="")
        der = ssl.PEM_cert_to_DER_cert(_first_certificate(pem))
    except (ssl.SSLError, ValueError) as error:
        protected = "ENCRYPTED" in private
        why = "the key is protected by a password" if protected else _why(error)
        raise ConfigError(f"{at}: {key or certificate} cannot be used: {why}") from None
    digest = hashlib.sha256(der).hexdigest().upper()
    pairs = ":".join(digest[k : k + 2] for k in range(0, len(digest), 2))
    return Tls(context, certificate, pairs, self_signed, new)


def _read_pem(file: Path, key: str) -> str:
    try:
        return file.read_text(encoding="latin-1")
    except OSError as error:
        raise ConfigError(f"{key}: {file}: {error.strerror}") from None


def _first_certificate(pem: str) -> str:
    return f"{_CERTIFICATE}{pem.partition(_CERTIFICATE)[2].partition(_END)[0]}{_END}\n"


def _why(error: Exception) -> str:
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    return getattr(error, "strerror", None) or str(error)
