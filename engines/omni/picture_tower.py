"""A picture as an Omni model's vision tower takes it, and the tower itself.

Pixels are cut into patches by the published processor's class, with the sizes of the model's own preprocessor_config.json; what may be
decoded is the rule of all vision stages (`engines.vision.picture`). Of a still picture the tower gets the same image twice, as
published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engines.omni.edge import Sight
from engines.omni.options import VisionOptions
from engines.omni.parts import Family, Weights
from engines.vision.picture import decoded
from session_server.types.errors import EngineFault, ModelsMissing

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

    def look(self, pictures: Sequence[Patches]) -> list[Sight]:
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

    def _apart(self, pictures: Sequence[Patches], embeds: Tensor, deep: Tensor) -> list[Sight]:
        sights, at = [], 0
        for picture in pictures:
            _, rows, columns = (
                picture.grid[0] // torch.tensor([1, self._merge, self._merge])
            ).tolist()
            end = at + rows * columns
            # copies: a part would keep the whole batch in memory
            sights.append(Sight(rows, columns, embeds[at:end].clone(), deep[:, at:end].clone()))
            at = end
        return sights
