"""Memory that two processes share leaves nothing behind, whatever they die of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from session_server.process import shared_memory
from session_server.process.shared_memory import Arena

pytestmark = pytest.mark.unit


@pytest.fixture(params=["memfd", "file"])
def nameless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Both kinds of file without a name."""
    monkeypatch.setattr(shared_memory.tempfile, "tempdir", str(tmp_path))
    if request.param == "file":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("this system has none")
    return tmp_path


def test_what_one_end_writes_the_other_reads(nameless: Path):
    one = Arena.new(4096)
    other = Arena(os.dup(one.descriptor))
    assert other.size == 4096
    one.write(64, memoryview(b"from here to there"))
    assert other.read(69, 4) == b"here"
    one.close()
    assert other.read(69, 4) == b"here"
    other.close()


def test_it_has_no_name_and_no_descriptor_after_its_end(nameless: Path):
    one = Arena.new(4096)
    assert list(nameless.iterdir()) == []
    assert os.fstat(one.descriptor).st_nlink == 0
    assert not os.get_inheritable(one.descriptor)
    descriptor = one.descriptor
    one.close()
    one.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
