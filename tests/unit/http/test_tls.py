"""The server's own certificate: private, good for every name of this machine, and the same as long as it can be."""

from __future__ import annotations

import datetime
import socket
import ssl
import stat
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from cryptography import x509

from session_server.http.tls import names_of_this_machine, own_certificate
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def read(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def names(certificate: x509.Certificate) -> set[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(entry.value) for entry in found}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "tls" / "own.pem"


def test_it_names_this_machine_and_nobody_else_can_read_it(file: Path):
    made = own_certificate("talk.example.org", NOW, file)
    assert made.new
    assert {"localhost", "127.0.0.1", "::1", "talk.example.org"} <= names(read(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_the_fingerprint_stays_over_restarts(file: Path):
    first = own_certificate("127.0.0.1", NOW, file)
    before = file.read_bytes()
    again = own_certificate("0.0.0.0", NOW + 300 * DAY, file)
    assert (first.new, again.new) == (True, False)
    assert file.read_bytes() == before


def test_a_new_name_makes_a_new_one_that_keeps_the_old_names(file: Path):
    own_certificate("first.example.org", NOW, file)
    assert own_certificate("second.example.org", NOW, file).new
    assert {"first.example.org", "second.example.org"} <= names(read(file))
    assert not own_certificate("first.example.org", NOW, file).new


@pytest.mark.parametrize("days", [380, 1000])
def test_one_that_ends_soon_is_made_anew(file: Path, days: int):
    own_certificate("127.0.0.1", NOW, file)
    assert own_certificate("127.0.0.1", NOW + days * DAY, file).new
    assert read(file).not_valid_after_utc > NOW + days * DAY


@pytest.mark.parametrize("damage", ["cut", "empty", "open to others"])
def test_a_file_that_cannot_serve_is_made_anew(file: Path, damage: str):
    own_certificate("127.0.0.1", NOW, file)
    if damage == "open to others":
        file.chmod(0o644)
    else:
        file.write_bytes(file.read_bytes()[:200] if damage == "cut" else b"")
    assert own_certificate("127.0.0.1", NOW, file).new
    assert not own_certificate("127.0.0.1", NOW, file).new


def test_a_folder_that_cannot_be_written_names_the_key(tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConfigError, match=r"server\.tls_self_signed: the certificate cannot be"):
        own_certificate("127.0.0.1", NOW, tmp_path / "file" / "own.pem")


@pytest.mark.parametrize("host", ["0:0:0:0:0:0:0:1", "FD00:0::0001", "fd00::2%eth0"])
def test_an_address_in_another_spelling_makes_no_new_one_every_time(file: Path, host: str):
    own_certificate(host, NOW, file)
    assert not own_certificate(host, NOW, file).new


def test_a_machine_of_more_names_than_fit_keeps_its_certificate(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    many = [
        SimpleNamespace(family=socket.AF_INET, address=f"10.0.0.{number}") for number in range(99)
    ]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": many})
    own_certificate("127.0.0.1", NOW, file)
    before = file.read_bytes()
    assert not own_certificate("127.0.0.1", NOW, file).new
    assert file.read_bytes() == before


def test_names_that_no_certificate_can_hold_are_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "büro rechner")
    found = names_of_this_machine("0.0.0.0")
    assert found[:3] == ["localhost", "127.0.0.1", "::1"]
    assert not {"0.0.0.0", "büro rechner"} & set(found)
    assert not any("%" in name for name in found)
