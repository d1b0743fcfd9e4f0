"""Which frames go from the talker to code to wave, and when; driven by hand, with vllm-omni's own payloads."""

import random
from collections import defaultdict
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm_omni", reason="needs the environment of .ci/engines")

import torch

from engines.vllm_omni.chunks import WANTED, Wanted, talker_to_code2wav

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]

GROUPS, STOP, LEFT = 16, 2150, 5


class Talker:
    """One answer as vllm-omni's talker stage has it; `sent`: of each chunk the frames before it and its own, by number."""

    def __init__(self, name: str = "answer") -> None:
        extra = {"codec_left_context_frames": LEFT}
        self.manager = SimpleNamespace(
            code_prompt_token_ids=defaultdict(list),
            connector=SimpleNamespace(config={"extra": extra}),
        )
        stops = SimpleNamespace(stop_token_ids=[STOP])
        self.request = SimpleNamespace(
            external_req_id=name, sampling_params=stops, num_output_tokens=0
        )
        self.made = 0
        self.sent: list[tuple[list[int], list[int]]] = []
        self.ended = False

    def step(self, code: int | None = None, finished: bool = False) -> None:
        """A step that makes a frame (its number is its code), or of this code, or none where that is 0."""
        self.request.num_output_tokens += 1
        if code is None:
            self.made += 1
            code = self.made
        output = {"codes": {"audio": torch.full((1, GROUPS), code)}}
        payload = talker_to_code2wav(self.manager, output, self.request, is_finished=finished)
        if payload is None:
            return
        frames = payload.codes.audio.reshape(GROUPS, -1)
        assert bool((frames == frames[0]).all())
        left = payload.meta.left_context_size
        numbers = frames[0].tolist()
        self.sent.append((numbers[:left], numbers[left:]))
        self.ended = bool(payload.meta.finished)

    @property
    def sizes(self) -> list[int]:
        return [len(own) for _, own in self.sent]


@pytest.fixture(autouse=True)
def _nothing_wanted() -> None:
    WANTED.clear()


def test_every_frame_is_sent_once_in_order_with_the_frames_before_it():
    rng = random.Random(3)
    talker = Talker()
    for _ in range(60):
        WANTED["answer"] = Wanted(rng.randrange(1, 9), None)
        talker.step()
    talker.step(STOP, finished=True)
    assert [n for _, own in talker.sent for n in own] == list(range(1, 61))
    for left, own in talker.sent:
        assert left == list(range(max(1, own[0] - LEFT), own[0]))


def test_as_many_as_are_wanted_go_at_once_and_a_new_size_holds_from_the_next_frame():
    talker = Talker()
    WANTED["answer"] = Wanted(2, None)
    for _ in range(4):
        talker.step()
    WANTED["answer"] = Wanted(5, None)
    for _ in range(10):
        talker.step()
    assert talker.sizes == [2, 2, 5, 5]


def test_a_talker_at_its_grant_keeps_nothing_back():
    talker = Talker()
    WANTED["answer"] = Wanted(8, 4)
    talker.step(0)  # the step that reads the prompt makes no frame
    for _ in range(3):
        talker.step()
    assert talker.sizes == [3]


def test_the_end_sends_what_there_is_and_the_mark_of_the_end_is_no_frame():
    talker = Talker()
    WANTED["answer"] = Wanted(8, None)
    for _ in range(3):
        talker.step()
    talker.step(STOP, finished=True)
    assert talker.sizes == [3]
    assert talker.ended
    nothing = Talker("other")
    nothing.step(STOP, finished=True)
    assert nothing.sent == [], "vllm-omni itself says the end then"


def test_what_is_kept_of_a_long_answer_is_bounded():
    talker = Talker()
    WANTED["answer"] = Wanted(4, None)
    for _ in range(400):
        talker.step()
    assert len(talker.manager.code_prompt_token_ids["answer"]) <= LEFT + 4
