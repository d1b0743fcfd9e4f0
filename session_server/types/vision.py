"""Pictures and what is seen in them: the job and the results of a vision stage (a step or a few, whole result), and what a thinker is told.

A stage that detects says what is there (`VisualEvidence`); one that sees for a thinker gives the picture in that model's own terms
(`EmbeddedPicture`). Either says why a picture cannot be looked at (`UnseenPicture`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from session_server.types.audio import Value

PICTURE_MARK = re.compile(r"<picture [0-9a-f]{16}>")
"""Of an `EmbeddedPicture`."""


@dataclass(frozen=True, slots=True)
class VisionKind:
    """What a vision stage is to clients. `kind`: detector, model, simulation, or an engine's name.

    `classes`: kinds of object that a detector knows, 0 for others. `ocr`: it reads text.
    """

    kind: str
    classes: int = 0
    ocr: bool = False


@dataclass(frozen=True, slots=True)
class PictureJob:
    """An encoded picture (JPEG, PNG, WebP or GIF) to be looked at. `read`: text in it is wanted too, at two to three times the
    cost."""

    data: bytes
    read: bool = True


@dataclass(frozen=True, slots=True)
class SeenObject:
    """One object: `place` in words, `box` (left, top, right, bottom) as shares of width and height; what is not `sure` may not be
    said to be there."""

    kind: str
    place: str
    sure: bool
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class VisualEvidence:
    """Output of a vision stage that detects. `light`: dark (nothing can be made out), dim, normal or bright. `texts` None: not
    read. `width`, `height`: pixels that were looked at. A result of no unit: the same picture had been looked at before."""

    objects: tuple[SeenObject, ...]
    texts: tuple[str, ...] | None
    colours: tuple[str, ...]
    light: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class EmbeddedPicture:
    """Output of a vision stage whose thinker sees. `mark`: the picture's identity (its bytes, the model, what was done before it),
    in a form that stands for it in texts (`PICTURE_MARK`); equal marks are equal pictures. `tokens`: of a prompt, that it takes. `width`, `height`: pixels
    that were looked at. `payload`: opaque, for the thinker of the same model; in main memory."""

    mark: str
    tokens: int
    width: int
    height: int
    payload: object


@dataclass(frozen=True, slots=True)
class UnseenPicture:
    """Output of a vision stage for a picture that cannot be looked at: the client's fault, not the engine's."""

    reason: str


@dataclass(frozen=True, slots=True)
class CameraView:
    """What the user's camera shows. `evidence` None: there is no current picture, and the last one is `age_s` old. `earlier`:
    what was seen before, a line each, the newest last."""

    evidence: VisualEvidence | None
    age_s: float
    earlier: tuple[str, ...] = ()


class VideoLimits(Value, frozen=True):
    """What a client chose of the opt-in video extension (protocol page, 8.4).

    `max_frames`: evidences whose whole text a prompt may have. `max_bytes`: of one encoded frame. `commentary`: the assistant
    may speak unasked when the picture changes. `report`: the client is told what was seen.
    """

    max_fps: float = 2.0
    max_frames: int = 8
    max_bytes: int = 180_000
    commentary: bool = False
    report: bool = False
