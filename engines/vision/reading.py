"""Text in a picture: PP-OCRv6 by RapidOCR, whose package carries its models.

Two networks, each called by itself: one finds where lines are, the other reads a few of them a call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rapidocr import RapidOCR
from rapidocr.main import RapidOCRError

from engines.vision.picture import Picture

_SURE = 0.85
_LETTERS = 3
"""Shorter findings are mostly edges that look like letters."""
MOST_TEXTS = 8
MOST_LINES = 24
"""That are read of one picture; a page of a book has more, and would cost seconds."""
LINES_AT_ONCE = 3
_LONGEST = 120

OPTIONS = {
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    # the default enlarges a picture's shorter side, at two to three times the cost
    "Det.limit_side_len": 640,
    "Det.limit_type": "max",
    "Global.use_cls": False,
    "Global.log_level": "error",
}

Line = npt.NDArray[np.uint8]
"""What is cut out of the picture, BGR, upright."""


class TextReader:
    """`lines` and then `read` of them; both run one network."""

    def __init__(self) -> None:
        self._engine = RapidOCR(params=OPTIONS)

    def lines(self, picture: Picture) -> list[Line]:
        """Where text may be, from top to bottom."""
        whole, record = self._engine.preprocess_img(picture[..., ::-1])
        try:
            lines, _ = self._engine.detect_and_crop(whole, record)
        except RapidOCRError:  # this is how it says that there are none
            return []
        return list(lines[:MOST_LINES])

    def read(self, lines: Sequence[Line]) -> list[str]:
        """What is certainly text among at most `LINES_AT_ONCE` lines, in their order."""
        result = self._engine.recognize_txt(list(lines))
        read = zip(result.txts or (), result.scores or (), strict=True)
        texts = (text.strip() for text, score in read if score >= _SURE)
        return [t[:_LONGEST] for t in texts if sum(c.isalnum() for c in t) >= _LETTERS]
