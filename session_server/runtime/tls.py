"""TLS for the server, and for clients of ours that speak to it.

A certificate of the user's (`server.tls_cert`, `server.tls_key`) or one of the server's own (`server.tls_self_signed`). What
cannot be used is a ConfigError that names the key. Clients trust the system's authorities and, beside them, the
certificate that this user's server keeps on this machine.
"""

from __future__ import annotations

import datetime
import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path

from session_server.config import Config
from session_server.runtime.own_certificate import certificate_file, own_certificate
from session_server.types.errors import ConfigError

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
    pem = _read(certificate, "server.tls_cert")
    private = pem if key is None else _read(key, "server.tls_key")
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


def _read(file: Path, key: str) -> str:
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
