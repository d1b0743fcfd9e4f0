"""The conformance checks of a stepped engine: order, releases, neighbours, slots, faults.

Owns the rules of `engines.base.SteppedEngine`, each as a check of one loaded engine, and how the
checks run its jobs. `SteppedKit` says what they need to know of the engine.

Invariants: each of `CHECKS` takes a kit and an engine that is loaded and idle, and leaves it so.
`storm` does things in random order; `an_engine_that_was_closed_can_be_loaded_again` loads an engine
of its own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engines.base import (
    AcousticFrames,
    JobKey,
    NoCapacity,
    Pcm,
    Spectra,
    Speech,
    SteppedEngine,
    StepRequest,
    StepResult,
    TokenOutput,
)

_MANY_STEPS = 4000


def _nothing_fed(n: int) -> Sequence[object]:
    return ()


def _equal(one: object, other: object) -> bool:
    return one == other


@dataclass
class SteppedKit:
    """One engine under test, and jobs for it.

    `job(n)`: jobs that differ in n. `payloads(n)`: what job n is fed, in order; empty for stages that are not fed.
    `same`: whether two sayings (see `said`) are equal, where rounding may move. `sizes_matter`, `neighbours_matter`: arithmetic
    that depends on how it is cut or batched, so that only lengths and ends are compared. `held`: how many jobs the engine
    holds, if it can be told. `bad_job`: one that `start` must refuse. `points`: released after 0 .. so many steps.
    """

    create: Callable[[], SteppedEngine]
    job: Callable[[int], object]
    payloads: Callable[[int], Sequence[object]] = _nothing_fed
    same: Callable[[object, object], bool] = _equal
    sizes: tuple[int, ...] = (3, 16, 100_000)
    sizes_matter: bool = False
    neighbours_matter: bool = False
    held: Callable[[SteppedEngine], int] | None = None
    bad_job: object = None
    points: int = 12
    _names: itertools.count[int] = field(default_factory=itertools.count)

    def key(self, session: str = "conformance") -> JobKey:
        """One that was never used."""
        return JobKey(session, f"job{next(self._names)}")

    def start(self, engine: SteppedEngine, n: int) -> JobKey:
        """Job n, with all that it is fed."""
        key = self.key(f"session{n}")
        engine.start(key, self.job(n))
        payloads = self.payloads(n)
        for i, payload in enumerate(payloads):
            engine.feed(key, payload, i + 1 == len(payloads))
        return key

    def run(self, engine: SteppedEngine, n: int, max_units: int) -> list[StepResult]:
        """All results of job n by itself; it is released at the end."""
        key = self.start(engine, n)
        results: list[StepResult] = []
        while not results or not results[-1].finished:
            (result,) = engine.step([StepRequest(key, max_units)])
            assert result.error is None, f"the job fails: {result.error}"
            results.append(result)
            assert len(results) < _MANY_STEPS, "the job ends"
        engine.release(key)
        return results

    def count(self, engine: SteppedEngine) -> int:
        return self.held(engine) if self.held is not None else 0


def said(results: Sequence[StepResult]) -> object:
    """What a job said, in a form that does not depend on how it was stepped."""
    outputs = [result.output for result in results if result.output is not None]
    first = outputs[0] if outputs else None
    if isinstance(first, TokenOutput):
        return "".join(o.text or "" for o in outputs if isinstance(o, TokenOutput))
    if isinstance(first, Pcm):
        return b"".join(o.pcm for o in outputs if isinstance(o, Pcm))
    if isinstance(first, Speech):
        return [(o.units, o.samples, o.words) for o in outputs if isinstance(o, Speech)]
    if isinstance(first, Spectra | AcousticFrames):
        return sum(o.units for o in outputs if isinstance(o, Spectra | AcousticFrames))
    return outputs


Check = Callable[[SteppedKit, SteppedEngine], None]


def says_what_it_is(kit: SteppedKit, engine: SteppedEngine) -> None:
    assert isinstance(engine, SteppedEngine), "it has all methods of the contract"
    capabilities = engine.capabilities
    assert capabilities.max_batch >= 1
    both = (capabilities.unit_samples > 0) == (capabilities.unit_rate > 0)
    assert both, "a unit of audio has samples and a rate"


def every_request_gets_one_result_in_order(kit: SteppedKit, engine: SteppedEngine) -> None:
    keys = _start_some(kit, engine)
    batch = [StepRequest(key, 8) for key in reversed(keys)]
    results = engine.step(batch)
    assert [r.key for r in results] == [r.key for r in batch], "one result a request, in its order"
    assert all(r.error is None for r in results)
    _release(engine, keys)


def a_job_ends_once_and_does_no_more_than_it_may(kit: SteppedKit, engine: SteppedEngine) -> None:
    results = kit.run(engine, 0, 7)
    assert any(r.output is not None for r in results), "a job has outputs"
    finished = [r.finished for r in results]
    assert finished == [False] * (len(results) - 1) + [True], "it is finished at its last result"
    if kit.payloads(0):
        assert all(0 <= r.units <= 7 for r in results), "at most max_units are done"


def step_sizes_do_not_change_what_is_said(kit: SteppedKit, engine: SteppedEngine) -> None:
    whole = [said(kit.run(engine, 0, size)) for size in kit.sizes]
    for one, size in zip(whole, kit.sizes, strict=True):
        if kit.sizes_matter:
            assert _length(one) == _length(whole[0]), f"steps of {size} change the length"
        else:
            assert kit.same(one, whole[0]), f"steps of {size} change what is said"


def neighbours_do_not_hear_each_other(kit: SteppedKit, engine: SteppedEngine) -> None:
    """Two at once with steps of different sizes, and a third that is released in the middle."""
    alone = [said(kit.run(engine, n, 5)) for n in range(2)]
    keys = _start_some(kit, engine, 3)
    got: dict[JobKey, list[StepResult]] = {key: [] for key in keys}
    sizes = dict(zip(keys, (5, 3, 4), strict=False))
    waiting, rounds = list(keys), 0
    while waiting:
        for result in engine.step([StepRequest(key, sizes[key]) for key in waiting]):
            assert result.error is None
            got[result.key].append(result)
        rounds += 1
        if rounds == 2 and len(keys) > 2:
            engine.release(keys[2])
        waiting = [k for k in waiting if not got[k][-1].finished and (rounds < 2 or k in keys[:2])]
    _release(engine, keys)
    for key, one in zip(keys[:2], alone, strict=False):
        together = said(got[key])
        if kit.neighbours_matter:
            assert _length(together) == _length(one), "a neighbour changes the length"
        else:
            assert kit.same(together, one), "a neighbour changes what is said"


def nothing_comes_after_a_release_at_any_point(kit: SteppedKit, engine: SteppedEngine) -> None:
    before, ends = kit.count(engine), False
    for point in range(kit.points):
        key, payloads = kit.key(), list(kit.payloads(0))
        engine.start(key, kit.job(0))
        for payload in payloads[:1]:
            engine.feed(key, payload, False)
        for _ in range(point):
            (result,) = engine.step([StepRequest(key, 2)])
            ends = ends or result.finished
        engine.release(key)
        engine.release(key)
        for payload in payloads[1:]:
            engine.feed(key, payload, True)
        (result,) = engine.step([StepRequest(key, 100)])
        nothing = (result.key, result.output, result.units, result.error) == (key, None, 0, None)
        assert nothing, f"after a release (step {point}) a step gives {result}"
        assert kit.count(engine) == before, "a released job's state is freed"
        if ends:
            return


def unknown_keys_are_harmless(kit: SteppedKit, engine: SteppedEngine) -> None:
    stranger = kit.key("nobody")
    engine.release(stranger)
    payloads = kit.payloads(0)
    engine.feed(stranger, payloads[0] if payloads else None, True)
    key = kit.start(engine, 0)
    results = engine.step([StepRequest(stranger, 4), StepRequest(key, 4)])
    engine.release(key)
    assert [r.key for r in results] == [stranger, key]
    assert (results[0].output, results[0].units) == (None, 0), "an unknown key gives nothing"
    assert results[1].error is None


def a_job_that_cannot_be_done_is_refused(kit: SteppedKit, engine: SteppedEngine) -> None:
    """Another runs meanwhile, unharmed."""
    key = kit.start(engine, 0)
    before = kit.count(engine)
    for job in (object(), *([] if kit.bad_job is None else [kit.bad_job])):
        said_why = ""
        try:
            engine.start(kit.key("wrong"), job)
        except ValueError as error:
            said_why = str(error)
        except NoCapacity:
            said_why = "no slot is free"
        assert said_why, "a job that can never run is a ValueError that says why"
        assert kit.count(engine) == before, "a refused job holds nothing"
    (result,) = engine.step([StepRequest(key, 4)])
    assert result.error is None
    engine.release(key)


def a_key_that_is_started_is_refused(kit: SteppedKit, engine: SteppedEngine) -> None:
    key = kit.start(engine, 0)
    refused = False
    try:
        engine.start(key, kit.job(0))
    except ValueError:
        refused = True
    except NoCapacity:
        refused = True
    assert refused, "a key that is started is a ValueError"
    engine.release(key)


def slots_are_bounded_and_come_free(kit: SteppedKit, engine: SteppedEngine) -> None:
    slots = engine.capabilities.slots
    if slots is None:
        return
    keys = [kit.start(engine, n) for n in range(slots)]
    full = False
    try:
        engine.start(kit.key("too many"), kit.job(slots))
    except NoCapacity:
        full = True
    assert full, f"with {slots} jobs started, another is NoCapacity"
    engine.release(keys.pop(0))
    keys.append(kit.start(engine, slots))
    _release(engine, keys)


def input_that_is_not_there_yet_is_waited_for(kit: SteppedKit, engine: SteppedEngine) -> None:
    if not kit.payloads(0):
        return
    key = kit.key("early")
    engine.start(key, kit.job(0))
    (result,) = engine.step([StepRequest(key, 8)])
    nothing = (result.output, result.units, result.finished, result.error)
    assert nothing == (None, 0, False, None), "a job without input gives nothing and goes on"
    engine.feed(key, None, True)
    (result,) = engine.step([StepRequest(key, 8)])
    engine.release(key)
    assert (result.units, result.finished) == (0, True), "a job whose input ended empty is finished"


CHECKS: tuple[Check, ...] = (
    says_what_it_is,
    every_request_gets_one_result_in_order,
    a_job_ends_once_and_does_no_more_than_it_may,
    step_sizes_do_not_change_what_is_said,
    neighbours_do_not_hear_each_other,
    nothing_comes_after_a_release_at_any_point,
    unknown_keys_are_harmless,
    a_job_that_cannot_be_done_is_refused,
    a_key_that_is_started_is_refused,
    slots_are_bounded_and_come_free,
    input_that_is_not_there_yet_is_waited_for,
)


def an_engine_that_was_closed_can_be_loaded_again(kit: SteppedKit) -> None:
    engine = kit.create()
    engine.load()
    try:
        key = kit.start(engine, 0)
        engine.step([StepRequest(key, 4)])
        engine.close()
        engine.close()
        engine.load()
        assert kit.count(engine) == 0, "nothing is kept over close and load"
        (result,) = engine.step([StepRequest(key, 4)])
        assert result.output is None, "a job from before is unknown"
        assert said(kit.run(engine, 0, 8)), "it serves again"
    finally:
        engine.close()


def storm(kit: SteppedKit, engine: SteppedEngine, seed: int, moves: int = 60) -> None:
    """Jobs start, step in batches of any size, and are released, in random order; some keys are stale by then."""
    rng, before = random.Random(seed), kit.count(engine)
    live: list[JobKey] = []
    gone: list[JobKey] = []
    places = min(engine.capabilities.max_batch, engine.capabilities.slots or 4, 4)
    for _ in range(moves):
        move = rng.choice(("start", "step", "step", "step", "release"))
        if move == "start" and len(live) < places:
            live.append(kit.start(engine, rng.randrange(3)))
        elif move == "release" and live:
            gone.append(live.pop(rng.randrange(len(live))))
            engine.release(gone[-1])
        elif live:
            batch = rng.sample(live, rng.randrange(1, len(live) + 1)) + gone[-1:]
            results = engine.step([StepRequest(key, rng.randrange(1, 20)) for key in batch])
            assert [r.key for r in results] == batch, "one result a request, in its order"
            for result in results:
                assert result.error is None
                if result.key in gone:
                    assert (result.output, result.units) == (None, 0), "nothing after a release"
                elif result.finished:
                    live.remove(result.key)
                    engine.release(result.key)
    _release(engine, live)
    assert kit.count(engine) == before, "all state is freed"


def _start_some(kit: SteppedKit, engine: SteppedEngine, most: int = 2) -> list[JobKey]:
    capabilities = engine.capabilities
    places = min(most, capabilities.slots or most, capabilities.max_batch)
    return [kit.start(engine, n) for n in range(places)]


def _release(engine: SteppedEngine, keys: list[JobKey]) -> None:
    for key in keys:
        engine.release(key)


def _length(one: object) -> object:
    """What must be equal all the same. Of text: that there is some."""
    if isinstance(one, str):
        return bool(one)
    return len(one) if isinstance(one, bytes | list) else one
