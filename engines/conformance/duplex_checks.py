"""The rules of `engines.duplex.base`, each as a check of one engine: `for check in CHECKS: check(kit)`."""

from __future__ import annotations

from collections.abc import Callable

from engines.conformance.duplex_kit import CONFIG, Crowd, DuplexKit, Talk, alone, hear
from engines.duplex.base import DuplexConfig, DuplexEngine

_SLOTS = 3


def crowd_is_as_if_alone(kit: DuplexKit) -> None:
    """Twice as many conversations as slots come, pause and go: each is as if nobody else had been there."""
    _crowd(kit, rests=False)


def slots_that_were_lent_go_on(kit: DuplexKit) -> None:
    """The same where conversations give up their slot in the middle, by a saved state, and go on in another."""
    if kit.create(1).capabilities.can_save:
        _crowd(kit, rests=True)


def _crowd(kit: DuplexKit, rests: bool) -> None:
    with kit.loaded(_SLOTS) as engine:
        size = engine.capabilities.frame_samples
        talks = [Talk(k, kit.ticks + k, size) for k in range(2 * _SLOTS)]
        crowd = Crowd(engine, talks, rests, seed=1)
        crowd.run()
    assert crowd.full, "the house was full at least once"
    assert not rests or crowd.rested > _SLOTS, "slots were given up"
    with kit.loaded(1) as single:
        for talk in talks:
            expected = alone(single, 0, talk.frames, talk.config)
            assert kit.same(talk.said, expected), f"conversation {talk.seed} is as if alone"


def slots_start_afresh(kit: DuplexKit) -> None:
    """A slot, and a reset one, starts as if nobody had ever been there."""
    with kit.loaded(3) as engine:
        first = alone(engine, 0, kit.frames(1))
        alone(engine, 1, kit.frames(2))
        assert alone(engine, 1, kit.frames(1)) == first, "a slot starts afresh"
        engine.join(2, CONFIG)
        hear(engine, 2, kit.frames(3))
        engine.reset(2)
        assert hear(engine, 2, kit.frames(1)) == first, "a reset slot starts afresh"


def states_are_exact(kit: DuplexKit) -> None:
    """A saved state goes on exactly, in another slot too, and is not changed by going on."""
    frames = kit.frames(4, kit.ticks + 30)
    with kit.loaded(2) as engine:
        if not engine.capabilities.can_save:
            engine.join(0, CONFIG)
            _refuses(lambda: engine.save_state(0), "save_state of an engine that cannot")
            return
        engine.join(0, CONFIG)
        hear(engine, 0, frames[: kit.ticks])
        state = engine.save_state(0)
        rest = hear(engine, 0, frames[kit.ticks :])
        engine.load_state(0, state)
        assert hear(engine, 0, frames[kit.ticks :]) == rest, "a state goes on exactly"
        engine.join(1, CONFIG)
        engine.load_state(1, state)
        beside = [engine.tick({1: frame, 0: None})[1] for frame in frames[kit.ticks :]]
        assert beside == rest, "a state goes on exactly in another slot"


def what_is_told_later_holds(kit: DuplexKit) -> None:
    """`update` before the first frame is as a `join` with it; later it moves no neighbour, and goes along with a state. An engine
    that reads nothing is told nothing by it."""
    other = DuplexConfig(instructions="answer at length", voice="another")
    frames = kit.frames(7)
    with kit.loaded(2) as engine:
        plain, changed = alone(engine, 0, frames), alone(engine, 0, frames, other)
        if not engine.capabilities.reads_instructions:
            assert plain == changed, "an engine that reads no instructions says the same"
        engine.join(0, CONFIG)
        engine.update(0, other)
        assert hear(engine, 0, frames) == changed, "an update before the first frame"
        engine.join(1, CONFIG)
        engine.reset(0)
        both = []
        for number, frame in enumerate(frames):
            if number == len(frames) // 2:
                engine.update(0, CONFIG)
            both.append(engine.tick({0: frame, 1: frame}))
        assert kit.same([said[1] for said in both], plain), "an update moves no neighbour"
        if engine.capabilities.can_save:
            state = engine.save_state(0)
            rest = hear(engine, 0, frames)
            engine.load_state(1, state)
            assert hear(engine, 1, frames) == rest, "what was told goes along with the state"


def mistakes_move_nothing(kit: DuplexKit) -> None:
    """What cannot be is a ValueError before anything has moved."""
    frames = kit.frames(5, 20)
    with kit.loaded(2) as engine:
        expected = alone(engine, 0, frames)
        engine.join(0, CONFIG)
        said = hear(engine, 0, frames[:10])
        for what, mistake in _mistakes(engine).items():
            _refuses(mistake, what)
        engine.leave(1)
        engine.leave(engine.capabilities.slots + 5)
        assert engine.tick({}) == {}, "a tick of nobody says nothing"
        said += hear(engine, 0, frames[10:])
        assert said == expected, "mistakes move nothing"


def _mistakes(engine: DuplexEngine) -> dict[str, Callable[[], object]]:
    slots = engine.capabilities.slots
    return {
        "join of a joined slot": lambda: engine.join(0, CONFIG),
        "join of a slot too many": lambda: engine.join(slots, CONFIG),
        "join of slot -1": lambda: engine.join(-1, CONFIG),
        "reset of an empty slot": lambda: engine.reset(1),
        "update of an empty slot": lambda: engine.update(1, CONFIG),
        "save_state of an empty slot": lambda: engine.save_state(1),
        "load_state into an empty slot": lambda: engine.load_state(1, b""),
        "load_state of a damaged state": lambda: engine.load_state(0, b"\x00damaged"),
        "tick of an empty slot": lambda: engine.tick({0: None, 1: None}),
        "tick with a frame of another length": lambda: engine.tick({0: b"\x00\x00"}),
    }


def _refuses(mistake: Callable[[], object], what: str) -> None:
    try:
        mistake()
    except ValueError:
        return
    raise AssertionError(f"{what} is refused with a ValueError")


def a_load_forgets(kit: DuplexKit) -> None:
    """After a fault the engine is closed and loaded: every slot is empty."""
    frames = kit.frames(6, 12)
    with kit.loaded(2) as engine:
        first = alone(engine, 0, frames)
        engine.join(0, CONFIG)
        engine.close()
        engine.load()
        assert alone(engine, 0, frames) == first, "a load forgets"


Check = Callable[[DuplexKit], None]

CHECKS: tuple[Check, ...] = (
    crowd_is_as_if_alone,
    slots_that_were_lent_go_on,
    slots_start_afresh,
    states_are_exact,
    what_is_told_later_holds,
    mistakes_move_nothing,
    a_load_forgets,
)
