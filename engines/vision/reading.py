"""Text in a picture: PP-OCRv6 by RapidOCR, whose package carries its models."""

from __future__ import annotations

from rapidocr import RapidOCR
from rapidocr.utils.output import RapidOCROutput

from engines.vision.picture import Picture
from session_server.errors import EngineFault

_SURE = 0.85
_LETTERS = 3
"""Shorter findings are mostly edges that look like letters."""
_MOST = 8
_LONGEST = 120

_OPTIONS = {
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    # the default enlarges a picture's shorter side, at two to three times the cost
    "Det.limit_side_len": 640,
    "Det.limit_type": "max",
    "Global.use_cls": False,
    "Global.log_level": "error",
}


class TextReader:
    """Reads what is written, in the order from top to bottom."""

    def __init__(self) -> None:
        self._engine = RapidOCR(params=_OPTIONS)

    def __call__(self, picture: Picture) -> tuple[str, ...]:
        """Lines that are certainly text."""
        result = self._engine(picture[..., ::-1])
        if not isinstance(result, RapidOCROutput):
            raise EngineFault("the text reader ran without one of its parts")
        lines = zip(result.txts or (), result.scores or (), strict=True)
        texts = (text.strip() for text, score in lines if score >= _SURE)
        kept = (text[:_LONGEST] for text in texts if sum(c.isalnum() for c in text) >= _LETTERS)
        return tuple(kept)[:_MOST]
