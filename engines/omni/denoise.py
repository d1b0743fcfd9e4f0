"""Steps of Qwen2.5-Omni's denoiser over a batch of chunks, each at a time of its own.

The published class runs one whole utterance from noise to mel in one call. Here the same modules and the same solver are called
step by step: a step takes every chunk of the batch over one interval of its time (four evaluations, each with and without the
condition). Attention sees blocks of `block` mel frames: its own, some before and one ahead; so a chunk is a run of whole blocks
with some of its neighbours, at its own positions, and shorter ones are padded with frames that only see each other.

Noise and positions belong to a frame's place in the answer, so that a frame begins alike whatever chunk it is in. The names of
transformers that are used are checked by `tests/integration/engines_omni/test_names.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from session_server.types.errors import EngineFault

POINTS = 10
"""Instants from noise to mel, as in the published generation; a chunk takes one step less."""
_GUIDANCE = 0.5
_SWAY = -1.0
_NOWHERE = 1 << 20
"""Block number of padding: farther away than any layer sees."""

Tensor = Any


@dataclass(frozen=True, slots=True)
class Timbre:
    """A voice. `speaker` [2, size] and `reference` [2, size]: with and without the condition."""

    speaker: Tensor
    reference: Tensor


@dataclass(slots=True)
class NoisyChunk:
    """`codes` [n] and `mel` [n * repeats, bins] from mel frame `begin` on, which is the first of a block; `done`: steps behind it."""

    timbre: Timbre
    codes: Tensor
    mel: Tensor
    begin: int
    done: int = 0

    @property
    def clean(self) -> bool:
        return self.done >= POINTS - 1


class Denoiser:
    """`model`: the class's DiT, in float32. Raises EngineFault for one whose blocks hold no whole codes."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - a module of torch
        from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import RungeKutta4ODESolver

        self._model = model
        self._solver = RungeKutta4ODESolver(None, None)
        self.repeats = int(model.repeats)
        """Mel frames of a code."""
        self.block = int(model.block_size)
        self.bins = int(model.mel_dim)
        if self.block % self.repeats:
            raise EngineFault(f"blocks of {self.block} mel frames hold no whole codes")
        self.codes = int(model.text_embed.codec_embed.num_embeddings) - 1
        self.device = model.proj_out.weight.device
        line = torch.linspace(0, 1, POINTS, device=self.device)
        self._times = line + _SWAY * (torch.cos(torch.pi / 2 * line) - 1 + line)

    def timbre(self, speaker: Tensor, reference_mel: Tensor) -> Timbre:
        """Of a voice's vector [1, size] and an example of it [1, frames, bins]."""
        example = reference_mel.to(self.device, torch.float32)
        vector = speaker.to(self.device, torch.float32)
        encode = self._model.input_embed.spk_encoder
        reference = torch.cat([encode(example), encode(torch.zeros_like(example))])
        return Timbre(torch.cat([vector, torch.zeros_like(vector)]), reference)

    def step(self, chunks: Sequence[NoisyChunk]) -> None:
        """Take each chunk, none of which is clean, over its next interval."""
        pad = torch.nn.utils.rnn.pad_sequence
        mel = pad([chunk.mel for chunk in chunks], batch_first=True)
        around = _Around(self, chunks, mel.shape[1])
        done = torch.tensor([chunk.done for chunk in chunks], device=self.device)
        begin, end = self._times[done][:, None, None], self._times[done + 1][:, None, None]
        moved, _ = self._solver._compute_step(around.velocity, begin, end - begin, end, mel)
        mel = mel + moved
        for chunk, row in zip(chunks, mel, strict=True):
            chunk.mel = row[: len(chunk.mel)]
            chunk.done += 1


class _Around:
    """What stays the same over one step: codes, voices, positions, and who sees whom. Rows come twice: with the condition and
    without."""

    def __init__(self, denoiser: Denoiser, chunks: Sequence[NoisyChunk], width: int) -> None:
        self._model = model = denoiser._model
        pad = torch.nn.utils.rnn.pad_sequence
        codes = pad([chunk.codes for chunk in chunks], batch_first=True)
        code = torch.cat([model.text_embed(codes), model.text_embed(codes, drop_code=True)])
        speaker = torch.cat([torch.stack([c.timbre.speaker[i] for c in chunks]) for i in (0, 1)])
        known = torch.cat([torch.stack([c.timbre.reference[i] for c in chunks]) for i in (0, 1)])
        self._fixed = (
            known[:, None].expand(-1, width, -1),
            code,
            speaker[:, None].expand(-1, width, -1),
        )
        device = denoiser.device
        begin = torch.tensor([chunk.begin for chunk in chunks], device=device)
        length = torch.tensor([len(chunk.mel) for chunk in chunks], device=device)
        here = torch.arange(width, device=device)
        places = begin[:, None] + here
        block = places // denoiser.block
        block = block.masked_fill(here >= length[:, None], _NOWHERE).repeat(2, 1)
        self._difference = (block[:, None, :] - block[:, :, None])[:, None]
        self._positions = model.rotary_embed(code, places.repeat(2, 1))

    def velocity(self, time: Tensor, mel: Tensor) -> Tensor:
        """Where each row of `mel` [rows, frames, bins] moves at its `time` [rows, 1, 1]."""
        model = self._model
        at = model.time_embed(time[:, 0, 0].repeat(2))
        hidden = model.input_embed.proj(torch.cat((mel.repeat(2, 1, 1), *self._fixed), -1))
        for layer in model.transformer_blocks:
            hidden = layer(
                hidden, at, position_embeddings=self._positions, block_diff=self._difference
            )
        guided, free = model.proj_out(model.norm_out(hidden, at)).chunk(2)
        return guided + (guided - free) * _GUIDANCE
