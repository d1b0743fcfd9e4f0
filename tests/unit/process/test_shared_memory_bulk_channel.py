"""What crosses to a stage's process: arrays and tensors beside the message, as they were."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from multiprocessing import Pipe
from os import dup

import numpy as np
import pytest

from session_server.process.shared_memory import Arena, BulkChannel, CarriedTensor, arrived

pytestmark = pytest.mark.unit


@pytest.fixture
def ends() -> Iterator[tuple[BulkChannel, BulkChannel]]:
    here, there = Pipe()
    out, into = Arena.new(1 << 20), Arena.new(1 << 20)
    one = BulkChannel(here, out, into)
    other = BulkChannel(there, Arena(dup(into.descriptor)), Arena(dup(out.descriptor)))
    yield one, other
    one.close()
    other.close()


def test_arrays_go_beside_the_message_and_can_be_written_to(ends):
    one, other = ends
    sent = {"a": np.arange(1000, dtype=np.float32), "empty": np.zeros((0, 3)), "b": np.ones((2, 2))}
    one.send(sent)
    assert one.in_arena >= 4000
    came = other.receive()
    for name, array in sent.items():
        assert came[name].dtype == array.dtype
        assert np.array_equal(came[name], array)
    came["a"][0] = 5.0
    other.send(came)
    assert one.receive()["a"][0] == 5.0


def test_what_does_not_fit_goes_whole_through_the_pipe(ends):
    one, other = ends
    from threading import Thread

    big = np.arange(300_000, dtype=np.float64)
    writer = Thread(target=one.send, args=(big,))
    writer.start()
    assert np.array_equal(other.receive(), big)
    writer.join()
    assert one.in_arena == 0


@pytest.mark.skipif("torch" in sys.modules, reason="for a process without torch")
def test_a_tensor_is_carried_on_by_a_process_without_torch(ends):
    one, other = ends
    numbers = np.arange(6, dtype=np.float32)
    tensor = arrived(bytearray(numbers.tobytes()), "float32", (2, 3))
    assert isinstance(tensor, CarriedTensor)
    one.send([tensor])
    assert one.in_arena > 0
    (came,) = other.receive()
    assert isinstance(came, CarriedTensor)
    assert (bytes(came.data), came.kind, came.shape) == (numbers.tobytes(), "float32", (2, 3))
    assert "torch" not in sys.modules


def test_what_cannot_be_pickled_is_told_before_anything_is_sent(ends):
    one, other = ends
    with pytest.raises((pickle.PicklingError, AttributeError)):
        one.send(lambda: None)
    one.send("next")
    assert other.receive() == "next"


def test_the_end_of_the_other_side_is_told(ends):
    one, other = ends
    other.close()
    other.close()
    with pytest.raises((EOFError, OSError)):
        one.receive()
