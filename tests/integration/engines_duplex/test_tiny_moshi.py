"""The tiny Moshi, real classes with random weights, keeps the duplex contract to the last code and sample."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs engines/duplex/requirements.txt")
pytest.importorskip("moshi", reason="needs engines/duplex/requirements.txt")
pytest.importorskip("sentencepiece", reason="needs engines/duplex/requirements.txt")

from engines.conformance.duplex import (  # noqa: E402  # noqa: E402
    CHECKS,
    Check,
    DuplexKit,
    alone as said_alone,
    states_are_exact,
    user_frames,
)
from engines.duplex import moshi_batch, tiny  # noqa: E402
from engines.duplex.moshi import MoshiEngine, create  # noqa: E402
from engines.duplex.moshi_batch import MoshiBatch, Spoken  # noqa: E402
from engines.duplex_engine import AssistantFrame, DuplexCapabilities, DuplexConfig, TurnAction  # noqa: E402
from engines.model_store.store import ModelStore  # noqa: E402
from session_server.types.errors import EngineFault, ModelsMissing  # noqa: E402

pytestmark = pytest.mark.integration

FRAME = 1_920


def unloaded(slots: int) -> MoshiEngine:
    return tiny.create({"slots": slots, "greedy": True}, ModelStore())


def engine(slots: int, **options: object) -> MoshiEngine:
    made = tiny.create({"slots": slots, "greedy": True, **options}, ModelStore())
    made.load()
    return made


def sounds_the_same(a: Sequence[AssistantFrame], b: Sequence[AssistantFrame]) -> bool:
    """Text and turns equal, the wave but for the rounding to 16 bits of what differs by 1e-5 at most."""
    if [(f.text, f.actions, f.tokens) for f in a] != [(f.text, f.actions, f.tokens) for f in b]:
        return False
    left, right = (np.frombuffer(b"".join(f.pcm for f in x), "<i2").astype(int) for x in (a, b))
    return int(abs(left - right).max()) <= 1


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_tiny_moshi_keeps_the_contract(check: Check) -> None:
    check(DuplexKit(unloaded, sounds_the_same, ticks=20))


def test_a_state_is_exact_when_rings_of_keys_have_gone_round() -> None:
    states_are_exact(DuplexKit(unloaded, sounds_the_same, ticks=tiny.CONTEXT + 6))


# -- codes and float samples, below the contract's bytes


class Stream:
    """One conversation in a batch: frames to hear, codes and samples that were said."""

    def __init__(self, seed: int, ticks: int) -> None:
        self.frames = (
            torch.randn(ticks, 1, FRAME, generator=torch.Generator().manual_seed(seed)) / 10
        )
        self.heard = 0
        self.codes: list[Any] = []
        self.waves: list[Any] = []

    @property
    def over(self) -> bool:
        return self.heard == len(self.frames)

    def take(self, spoken: Spoken, slot: int) -> None:
        self.heard += 1
        if spoken.speaks[slot]:
            self.codes.append(torch.cat([spoken.text[slot : slot + 1], spoken.codes[slot]]))
            self.waves.append(spoken.wave[slot])


def batch(slots: int) -> MoshiBatch:
    return MoshiBatch(
        tiny.build(tiny.DEFAULTS), replace(tiny.DEFAULTS, greedy=True).sampling, slots
    )


def run(made: MoshiBatch, streams: dict[int, Stream]) -> None:
    """One tick of these slots; the others hear noise that must not matter."""
    frames = torch.randn(made.slots, 1, FRAME)
    mask = torch.zeros(made.slots, dtype=torch.bool)
    for slot, stream in streams.items():
        frames[slot] = stream.frames[stream.heard]
        mask[slot] = True
    spoken = made.step(frames, mask)
    assert not (spoken.speaks & ~mask).any()
    for slot, stream in streams.items():
        stream.take(spoken, slot)


def alone(made: MoshiBatch, seed: int, ticks: int) -> Stream:
    stream = Stream(seed, ticks)
    made.begin(0)
    while not stream.over:
        run(made, {0: stream})
    return stream


def test_eight_live_slots_say_the_codes_of_each_alone_and_its_wave_within_1e_5() -> None:
    """Joining, leaving, pausing, giving up a slot and going on in another: at the level of codes and of samples in floating
    point."""
    made = batch(8)
    states: dict[Stream, bytes] = {}
    lent = 0
    waiting = [Stream(100 + k, 12 + 5 * (k % 4)) for k in range(16)]
    everybody, live, tick, full = list(waiting), dict[int, Stream](), 0, 0
    while waiting or live:
        while waiting and len(live) < 8 and (tick > 8 or len(live) <= tick):
            slot = min(set(range(8)) - set(live))
            made.begin(slot)
            stream = live[slot] = waiting.pop(0)
            if stream in states:
                made.load(slot, states.pop(stream))
                lent += 1
        runs = {s: x for s, x in live.items() if (tick + s) % 7}  # each pauses now and then
        full += len(live) == 8
        run(made, runs)
        for slot in [s for s, stream in live.items() if stream.over]:
            del live[slot]
        for slot in [s for s, stream in live.items() if tick % 5 == s and waiting]:
            states[live[slot]] = made.save(slot, {})
            waiting.append(live.pop(slot))
        tick += 1
    assert full > 10
    assert lent > 3
    worst, single_slot = 0.0, batch(1)
    for number, stream in enumerate(everybody):
        single = alone(single_slot, 100 + number, len(stream.frames))
        assert len(stream.codes) == len(single.codes) == len(stream.frames) - 1
        assert torch.equal(torch.stack(stream.codes), torch.stack(single.codes)), number
        difference = torch.cat(stream.waves) - torch.cat(single.waves)
        worst = max(worst, float(difference.abs().max()))
    assert worst <= 1e-5, worst


def test_a_slot_is_free_of_what_its_last_conversation_left_even_where_that_was_no_number() -> None:
    """A masked key is worth nothing in attention, but nothing times NaN is NaN."""
    made = batch(2)
    expected = Stream(1, 8)
    made.begin(0)
    while not expected.over:
        run(made, {0: expected})
    for row in moshi_batch.rows(made.modules):
        if row.tensor.is_floating_point():
            row.tensor.select(row.dim, 0).fill_(float("nan"))
    made.begin(0)
    again = Stream(1, 8)
    while not again.over:
        run(made, {0: again})
    assert torch.equal(torch.cat(again.waves), torch.cat(expected.waves))
    assert torch.equal(torch.stack(again.codes), torch.stack(expected.codes))


def test_a_saved_state_holds_only_what_is_in_use() -> None:
    made = engine(2)
    made.join(0, DuplexConfig())
    sizes = []
    for _ in range(2):
        for frame in user_frames(1, 20, FRAME):
            made.tick({0: frame})
        sizes.append(len(made.save_state(0)))
    assert sizes[0] < sizes[1]


def test_a_state_of_another_model_changes_nothing() -> None:
    made, other = engine(1), MoshiEngine(tiny.DEFAULTS, _wider)
    other.load()
    for each in (made, other):
        each.join(0, DuplexConfig())
        each.tick({0: None})
    expected = copy.deepcopy(made.save_state(0))
    with pytest.raises(ValueError, match="of another model"):
        made.load_state(0, other.save_state(0))
    assert [made.tick({0: None}) for _ in range(3)]
    made.load_state(0, expected)


def _wider(options: Any) -> Any:
    tiny.CONTEXT, before = 32, tiny.CONTEXT
    models = tiny.build(options)
    tiny.CONTEXT = before
    return models


def test_every_state_that_moshi_keeps_is_known() -> None:
    """The contract with moshi's private names: another version that keeps more says so at once."""
    made = batch(2)
    kinds = {
        type(state).__name__
        for module in made.modules.values()
        for state in module.get_streaming_state().values()
    }
    assert kinds == set(moshi_batch.FIELDS)
    known = {row.name for row in moshi_batch.rows(made.modules)}
    for label, module in made.modules.items():
        for path, state in module.get_streaming_state().items():
            for name, value in vars(state).items():
                if torch.is_tensor(value) and value.dim() and name not in ("exec_mask", "initial"):
                    assert f"{label}:{path}.{name}" in known


def test_an_unknown_state_is_an_engine_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    made = batch(1)
    fewer = {k: v for k, v in moshi_batch.FIELDS.items() if k != "_MHAState"}
    monkeypatch.setattr(moshi_batch, "FIELDS", fewer)
    with pytest.raises(EngineFault, match="_MHAState"):
        made.begin(0)


def test_it_gives_a_frame_each_tick_with_text_and_a_floor() -> None:
    made = engine(2)
    assert made.capabilities == DuplexCapabilities(24_000, FRAME, 2, can_save=True)
    assert made.capabilities.tick_ns == 80_000_000
    said = said_alone(made, 0, user_frames(1, 30, FRAME))
    assert all(len(frame.pcm) == 2 * FRAME for frame in said)
    assert [any(frame.pcm) for frame in said[:3]] == [False, True, True]  # the model's delays
    assert "".join(frame.text for frame in said).strip()
    assert next(action for frame in said for action in frame.actions) is TurnAction.TAKE


def test_sampling_follows_its_seed() -> None:
    first, second, third = (
        said_alone(engine(1, greedy=False, seed=seed), 0, [None] * 12) for seed in (1, 1, 2)
    )
    assert first == second != third


def test_missing_weights_are_named(tmp_path: Any) -> None:
    made = create({"folder": str(tmp_path), "device": "cpu"}, ModelStore())
    with pytest.raises(ModelsMissing, match=r"model\.safetensors is not there"):
        made.load()
    with pytest.raises(ModelsMissing, match=r"options\.folder"):
        create({"device": "cpu"}, ModelStore()).load()


def test_a_wrong_option_is_named() -> None:
    make: Callable[[dict[str, object]], object] = lambda options: create(options, ModelStore())  # noqa: E731
    for options, word in (
        ({"dtype": "int4"}, "dtype"),
        ({"slots": 0}, "slots"),
        ({"gpu": 1}, "gpu"),
    ):
        with pytest.raises(ValueError, match=word):
            make(options)
