"""Pictures for the tests of Omni models, and what a vision stage makes of them."""

from __future__ import annotations

import base64
import io

import numpy as np

from engines.base import EmbeddedPicture, JobKey, PictureJob, StepRequest, StepResult
from session_server.types.prompt import PromptMessage


def painted(seed: int, width: int = 200, height: int = 150, form: str = "PNG") -> bytes:
    """A picture of coloured squares: no two seeds are alike."""
    from PIL import Image

    squares = np.random.default_rng(seed).integers(0, 256, (6, 8, 3)).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(squares).resize((width, height), Image.Resampling.NEAREST).save(out, form)
    return out.getvalue()


def look(engine, *pictures: bytes, at_once: int = 1) -> list[StepResult]:
    """What the stage says of each, `at_once` in a step."""
    keys = [JobKey("looker", f"look{n}") for n in range(len(pictures))]
    results: list[StepResult] = []
    for first in range(0, len(keys), at_once):
        group = keys[first : first + at_once]
        for key, picture in zip(group, pictures[first:], strict=False):
            engine.start(key, PictureJob(picture))
        results += engine.step([StepRequest(key, 1) for key in group])
        for key in group:
            engine.release(key)
    return results


def embedded(engine, *pictures: bytes) -> list[EmbeddedPicture]:
    made = [result.output for result in look(engine, *pictures)]
    assert all(isinstance(picture, EmbeddedPicture) for picture in made), made
    return made


def shown(*pictures: EmbeddedPicture, words: str = "") -> PromptMessage:
    """A user's message of some words and these pictures, as the server writes it."""
    lines = [words] if words else []
    lines += [f"[Picture: {picture.mark}]" for picture in pictures]
    return PromptMessage("user", "\n".join(lines), images=pictures)


def picture_item(picture: bytes) -> dict[str, object]:
    """The client event that shows it."""
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    content = [{"type": "input_image", "image_url": url}]
    return {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": content},
    }
