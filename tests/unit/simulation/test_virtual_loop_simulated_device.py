"""What gives way on a simulated device: it runs in the gaps, rests while the others run, and loses nothing."""

from __future__ import annotations

import pytest

from engines.sim.cost_profile import Device
from session_server.simulation.virtual_loop import SharedDevice, VirtualLoop

pytestmark = pytest.mark.unit


class Machine:
    def __init__(self, concurrent: int) -> None:
        self.loop = VirtualLoop()
        self.device = SharedDevice(self.loop, Device(concurrent))
        self.ended: list[tuple[str, int, int]] = []

    def step(self, name: str, at: int, work: int) -> None:
        self.loop.at(at, self.device.run, work, self._end(name))

    def spare(self, name: str, at: int, work: int, share: float = 0.0) -> None:
        self.loop.at(at, self.device.spare, work, share, self._end(name))

    def _end(self, name: str):
        return lambda took: self.ended.append((name, self.loop.time, took))

    def run(self) -> list[tuple[str, int, int]]:
        self.loop.run_until(10_000)
        return self.ended


def test_alone_it_takes_its_time():
    machine = Machine(1)
    machine.spare("look", 0, 100)
    assert machine.run() == [("look", 100, 100)]


def test_it_rests_while_every_place_is_taken():
    machine = Machine(1)
    machine.spare("look", 0, 100)
    machine.step("a", 30, 50)
    machine.step("b", 60, 20)  # waits for a, until 80
    assert machine.run() == [("a", 80, 50), ("b", 100, 20), ("look", 170, 170)]


def test_it_goes_on_beside_the_others_while_a_place_is_free():
    machine = Machine(2)
    machine.spare("look", 0, 100)
    machine.step("a", 10, 60)
    machine.step("b", 40, 60)  # from 40 to 70 both places are taken
    assert machine.run() == [("a", 70, 60), ("b", 100, 60), ("look", 130, 130)]


def test_no_other_step_is_a_moment_later_for_it():
    quiet, beside = Machine(2), Machine(2)
    for machine in (quiet, beside):
        for number in range(40):
            machine.step(f"s{number}", number * 25, 10 + 7 * (number % 9))
    for number in range(30):
        beside.spare(f"look{number}", number * 33, 50)
    assert [one for one in beside.run() if one[0].startswith("s")] == quiet.run()
    assert sum(one[0].startswith("look") for one in beside.ended) == 30


def test_pieces_come_one_after_the_other():
    machine = Machine(0)
    machine.spare("first", 0, 100)
    machine.spare("second", 20, 100)
    assert machine.run() == [("first", 100, 100), ("second", 200, 100)]


def test_it_begins_when_there_is_a_place():
    machine = Machine(1)
    machine.step("a", 0, 50)
    machine.spare("look", 10, 30)
    assert machine.run() == [("a", 50, 50), ("look", 80, 70)]


def test_with_a_share_it_goes_on_slowly_and_the_others_pay_for_it():
    machine = Machine(1)
    machine.spare("look", 0, 100, share=0.2)
    machine.step("a", 40, 80)  # takes 80 / 0.8; the look does 20 of its 60 meanwhile
    assert machine.run() == [("a", 140, 100), ("look", 180, 180)]


def test_with_a_share_it_ends_even_where_there_is_never_a_place():
    machine = Machine(1)
    machine.step("a", 0, 8_000)
    machine.spare("look", 10, 100, share=0.1)
    assert machine.run() == [("look", 1_010, 1_000), ("a", 8_000, 8_000)]


def test_two_places_pay_half_each():
    machine = Machine(2)
    machine.step("a", 0, 1_000)
    machine.spare("look", 0, 1_000, share=0.5)
    machine.step("b", 100, 300)
    machine.run()
    assert ("b", 500, 400) in machine.ended
