"""When frames of the talker go to the code-to-wave stage, and how many at once: as many as this server's chunk rule wants.

Runs in the talker's process, on the thread that sends to the next stage; `PacedArScheduler` sets there what is wanted of each
answer, as often as the server says so. Frames gather until so many are there, or the talker stands at its grant or has ended:
what was made is never kept from the listener by a hold. With each chunk go frames before it, for the decoder's context, of which
vllm-omni cuts the samples off again.

vllm-omni's own function knows a first size and one for all others, for all answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from vllm_omni.data_entry_keys import CodesStruct, MetaStruct, OmniPayloadStruct

from engines.vllm.internals import Request, Whatever

Tensor = Any


@dataclass(slots=True)
class Wanted:
    """Of one answer: frames that make its next chunk, and tokens up to which its talker may go (None: no bound)."""

    frames: int
    granted: int | None


WANTED: dict[str, Wanted] = {}
"""By the name that the answer has outside its stage."""


class Frames(list[Tensor]):
    """Codes [1, groups] of an answer that a later chunk may need; `sent` of them were sent before. In vllm-omni's own table, which
    forgets an answer when it is over."""

    sent = 0


def talker_to_code2wav(
    transfer_manager: Whatever,
    multimodal_output: Whatever,
    request: Request,
    is_finished: bool = False,
) -> Whatever:
    """What vllm-omni calls after each step of an answer: the chunk that is to be sent now, or None."""
    name = request.external_req_id
    kept = transfer_manager.code_prompt_token_ids
    frames = kept.get(name)
    if not isinstance(frames, Frames):
        frames = kept[name] = Frames()
    codes = _new_codes(multimodal_output, _stops(request))
    if codes is not None:
        frames.extend(codes.split(1))
    waiting = len(frames) - frames.sent
    if not waiting or not (is_finished or _is_due(name, request, waiting)):
        return None
    left = min(frames.sent, _left_frames(transfer_manager))
    chunk = torch.cat(frames[frames.sent - left :]).transpose(0, 1).reshape(-1)
    del frames[: max(0, len(frames) - _left_frames(transfer_manager))]
    frames.sent = len(frames)
    return OmniPayloadStruct(
        codes=CodesStruct(audio=chunk),
        meta=MetaStruct(
            left_context_size=left, finished=torch.tensor(is_finished, dtype=torch.bool)
        ),
    )


def _is_due(name: str, request: Request, waiting: int) -> bool:
    wanted = WANTED.get(name)
    if wanted is None or waiting >= wanted.frames:
        return True
    return wanted.granted is not None and request.num_output_tokens >= wanted.granted


def _new_codes(output: Whatever, stops: set[int]) -> Tensor | None:
    """The step's frames [n, groups]; None: it made none, or said that the speech ends."""
    codes = output.get("codes", {}) if isinstance(output, Mapping) else {}
    audio = codes.get("audio") if isinstance(codes, Mapping) else None
    if not isinstance(audio, torch.Tensor) or not audio.numel() or not bool(audio.any()):
        return None
    return None if int(audio[0, 0]) in stops else audio


def _stops(request: Request) -> set[int]:
    return set(getattr(request.sampling_params, "stop_token_ids", None) or ())


def _left_frames(transfer_manager: Whatever) -> int:
    config = getattr(transfer_manager.connector, "config", None) or {}
    return int(config.get("extra", config).get("codec_left_context_frames", 25))
