"""A picture as an Omni model's vision tower takes it, and the tower itself.

Pixels are cut into patches by the published processor's class, with the sizes of the model's own preprocessor_config.json; what may be
decoded is the rule of all vision stages (`engines.vision.image_decoding`). Of a still picture the tower gets the same image twice, as
published.

The vision stage of an Omni model: pictures become what its thinker takes in their place (`edge.Sight`), in a step of their own.

A step is one pass of the vision tower over at most `max_batch` pictures; thinker, talker and vocoder have threads of their own, and may
have other devices. Answers are remembered by the picture's identity, its mark: the picture's bytes, and whatever else the answer
depends on (`_model_digest`). The memory is shared by all sessions, which is harmless: whoever has the same bytes knows the picture
already. It is bounded by tokens. A picture's mark does not depend on the batch that it was looked at in; its embeddings may by rounding.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engines.base import (
    Capabilities,
    EmbeddedPicture,
    JobKey,
    PictureJob,
    Stage,
    StepRequest,
    StepResult,
    UnseenPicture,
    device_place,
)
from engines.jobs import JobsByKey
from engines.omni.options import VisionOptions, read_options
from engines.omni.stage_payloads import EmbeddedImage
from engines.omni.weights import LOADING, Family, Weights, lacking
from engines.vision.image_decoding import LONGEST, BadPicture, decoded
from session_server.types.errors import EngineFault, ModelsMissing, one_line

_SIZES = "preprocessor_config.json"

Tensor = Any


@dataclass(frozen=True, slots=True)
class Patches:
    """`pixels` [rows * columns of patches, numbers of one], `grid` [1, 3]: 1, rows, columns. `width`, `height`: what was cut, in pixels."""

    pixels: Tensor
    grid: Tensor
    width: int
    height: int


class PictureTower:
    """Raises ModelsMissing or EngineFault when it cannot be made."""

    def __init__(self, options: VisionOptions, family: Family) -> None:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
            Qwen2VLImageProcessorPil,
        )

        weights = Weights(options, family)
        if not (weights.folder / _SIZES).exists():
            raise ModelsMissing(f"{weights.folder} has no {_SIZES}: its download is not whole")
        self._tower = weights.module(family.vision)
        config = self._tower.config
        self._merge = int(config.spatial_merge_size)
        self._patch = int(config.patch_size)
        self._cut: Any = Qwen2VLImageProcessorPil.from_pretrained(
            weights.folder, local_files_only=True
        )
        if (self._cut.patch_size, self._cut.merge_size) != (self._patch, self._merge):
            raise EngineFault(
                f"{weights.folder / _SIZES} cuts pictures into patches of {self._cut.patch_size} pixels, {self._cut.merge_size} by"
                f" {self._cut.merge_size}; the model takes {self._patch}, {self._merge} by {self._merge}"
            )
        most = options.picture_tokens * (self._patch * self._merge) ** 2
        least = int(self._cut.size["shortest_edge"])
        self._cut.size = {
            "shortest_edge": min(least, most),
            "longest_edge": min(int(self._cut.size["longest_edge"]), most),
        }

    def patches(self, data: bytes) -> Patches:
        """Raises BadPicture."""
        cut = self._cut(decoded(data), return_tensors="pt")
        grid = cut["image_grid_thw"]
        _, rows, columns = grid[0].tolist()
        return Patches(cut["pixel_values"], grid, columns * self._patch, rows * self._patch)

    def look(self, pictures: Sequence[Patches]) -> list[EmbeddedImage]:
        """One pass over all of them."""
        weight = next(self._tower.parameters())
        with torch.inference_mode():
            pixels = torch.cat([picture.pixels for picture in pictures])
            grids = torch.cat([picture.grid for picture in pictures])
            seen = self._tower(
                pixels.to(weight.device, weight.dtype), grid_thw=grids.to(weight.device)
            )
            embeds = seen.pooler_output.cpu()
            layers = getattr(seen, "deepstack_features", None) or []
            deep = torch.stack(list(layers)).cpu() if layers else embeds[None][:0]
        return self._apart(pictures, embeds, deep)

    def _apart(
        self, pictures: Sequence[Patches], embeds: Tensor, deep: Tensor
    ) -> list[EmbeddedImage]:
        sights, at = [], 0
        for picture in pictures:
            _, rows, columns = (
                picture.grid[0] // torch.tensor([1, self._merge, self._merge])
            ).tolist()
            end = at + rows * columns
            # copies: a part would keep the whole batch in memory
            sights.append(
                EmbeddedImage(rows, columns, embeds[at:end].clone(), deep[:, at:end].clone())
            )
            at = end
        return sights


VERSION = 1
"""Of what is done before the tower and after it."""


class OmniVision(JobsByKey[PictureJob]):
    """SteppedEngine for Stage.VISION: PictureJob in, EmbeddedPicture out."""

    def __init__(self, options: VisionOptions, family: Family) -> None:
        super().__init__(options.slots)
        self._options = options
        self._family = family
        self._tower: PictureTower | None = None
        self._model = b""
        self._known: OrderedDict[str, EmbeddedPicture] = OrderedDict()
        self._known_tokens = 0

    @property
    def capabilities(self) -> Capabilities:
        options = self._options
        return Capabilities(
            Stage.VISION,
            options.max_batch,
            options.slots,
            sees=True,
            runs_on=device_place(options.device),
        )

    @property
    def tower(self) -> PictureTower:
        """Raises EngineFault when it is not loaded."""
        if self._tower is None:
            raise EngineFault("the vision tower is not loaded")
        return self._tower

    @property
    def tokens_remembered(self) -> int:
        return self._known_tokens

    def load(self) -> None:
        if self._tower is None:
            with LOADING:
                self._tower = PictureTower(self._options, self._family)
            self._model = _model_digest(self._options)

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = self._accept(key, job, PictureJob)

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        tower = self.tower
        results: dict[JobKey, StepResult] = {}
        marks: dict[JobKey, str] = {}
        unseen: dict[str, Patches] = {}
        for key in (request.key for request in batch):
            job = self._jobs.pop(key, None)
            if job is None:
                results.setdefault(key, StepResult(key, finished=True))
                continue
            mark = self._mark(job.data)
            try:
                if mark not in self._known and mark not in unseen:
                    unseen[mark] = tower.patches(job.data)
            except BadPicture as error:
                bad = UnseenPicture(f"The picture {error}.")
                results[key] = StepResult(key, bad, 1, finished=True)
                continue
            except Exception as error:  # whatever the processor makes of it: that picture's fault
                reason = one_line(error, 200)
                results[key] = StepResult(key, finished=True, error=f"looking failed: {reason}")
                continue
            marks[key] = mark
        new = self._looked_at(tower, unseen)
        for key, mark in marks.items():
            picture = new.get(mark) or self._known[mark]
            results[key] = StepResult(key, picture, int(mark in new), finished=True)
        self._remember(new, marks.values())
        return [results[request.key] for request in batch]

    def close(self) -> None:
        super().close()
        self._known.clear()
        self._known_tokens = 0
        self._tower = None

    # -- within a step

    def _mark(self, data: bytes) -> str:
        return f"<picture {hashlib.blake2b(data, digest_size=8, key=self._model).hexdigest()}>"

    @staticmethod
    def _looked_at(
        tower: PictureTower, unseen: Mapping[str, Patches]
    ) -> dict[str, EmbeddedPicture]:
        if not unseen:
            return {}
        sights = tower.look(list(unseen.values()))
        return {
            mark: EmbeddedPicture(
                mark, sight.rows * sight.columns, patches.width, patches.height, sight
            )
            for (mark, patches), sight in zip(unseen.items(), sights, strict=True)
        }

    def _remember(self, new: Mapping[str, EmbeddedPicture], used: Iterable[str]) -> None:
        self._known.update(new)
        self._known_tokens += sum(picture.tokens for picture in new.values())
        for mark in used:
            self._known.move_to_end(mark)
        while self._known_tokens > self._options.remembered_tokens:
            _, oldest = self._known.popitem(last=False)
            self._known_tokens -= oldest.tokens


def _model_digest(options: VisionOptions) -> bytes:
    """Of all that the same bytes could be seen differently by: configuration and weights (by names and sizes), precision, and the
    size to which pictures are brought."""
    folder = Path(options.weights).expanduser()
    digest = hashlib.blake2b(digest_size=32)
    for name in ("config.json", "preprocessor_config.json"):
        digest.update((folder / name).read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size} ".encode())
    digest.update(f"{options.dtype} {options.picture_tokens} {LONGEST} {VERSION}".encode())
    return digest.digest()


def missing_for(options: Mapping[str, object], family: Family) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, VisionOptions(), family, family.vision)


def create_for(options: Mapping[str, object], family: Family) -> OmniVision:
    return OmniVision(read_options(options, VisionOptions()), family)
