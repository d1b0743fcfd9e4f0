"""A call's id names its worker; what is no such id names none."""

from __future__ import annotations

import pytest

from session_server.http.worker_identity import WorkerIdentity, slot_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("slot", [0, 1, 63])
def test_the_id_of_a_call_names_its_worker(slot: int):
    made = WorkerIdentity(1, slot=slot, workers=64).new_call_id()
    assert made.startswith(f"rtc_w{slot}_")
    assert slot_of(made) == slot


def test_a_server_of_one_process_names_none():
    assert slot_of(WorkerIdentity(1).new_call_id()) is None


@pytest.mark.parametrize(
    "call_id",
    [
        "",
        "rtc_",
        "rtc_w",
        "rtc_w1",
        "rtc_w_x",
        "rtc_w-1_x",
        "rtc_w99999_x",
        "rtc_w1x_y",
        "sess_w1_x",
        "rtc_w²_x",
        "rtc_w1/../2_x",
        "x_rtc_w1_x",
    ],
)
def test_what_is_no_id_of_ours_names_no_worker(call_id: str):
    assert slot_of(call_id) is None


def test_shares_of_a_bound_cover_it():
    assert [WorkerIdentity(1, workers=3).share_of(total, 1) for total in (0, 1, 16)] == [1, 1, 6]
