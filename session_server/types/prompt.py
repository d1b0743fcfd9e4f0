"""What a thinker is asked: the messages of a prompt, from the core, which writes them, to the engine, which reads them."""

from __future__ import annotations

from session_server.types.audio import Value
from session_server.types.vision import CameraView, EmbeddedPicture, VisualEvidence


class UserAudio(Value, frozen=True):
    """What the user said: a range of the input time line (samples at INPUT_RATE); with `item_id`, what is kept of the
    sound of that item's part `content_index`."""

    start_sample: int
    end_sample: int
    item_id: str | None = None
    content_index: int = 0


class PromptMessage(Value, frozen=True):
    """One entry of a prompt. `kind`: message; call (the assistant calls `name` with JSON `content`); result (of call `name`).
    `call_id` tells which call, of either.

    `interrupted`: an assistant message that the listener cut off; `content` is what was heard of it. `audio`: what a user said,
    for a thinker that hears: in the core its place, from the host on s16le at INPUT_RATE; `content` is then its transcript, where
    there is one, and is not part of the prompt. `pictures`: what was found in those that `content` speaks of. `camera`: what the
    last line of `content`, `[Camera ...]`, speaks of. `images`: for a thinker that sees, those whose marks stand in `content`;
    there they belong. The host sets them; none crosses a process on the way to it."""

    role: str
    content: str
    kind: str = "message"
    name: str | None = None
    call_id: str | None = None
    interrupted: bool = False
    audio: UserAudio | bytes | None = None
    pictures: tuple[VisualEvidence, ...] = ()
    camera: CameraView | None = None
    images: tuple[EmbeddedPicture, ...] = ()
