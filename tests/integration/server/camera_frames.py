"""What a camera in these tests shows, and the events that bring it: small JPEGs that the gate tells apart."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
from typing import Any

from PIL import Image, ImageDraw

from session_server.http.server import Server
from session_server.observability.catalogue import PREFIX
from tests.integration.server.caller import Caller, Event

EYES: dict[str, Any] = {
    "graph__stages__vision__engine": "sim.vision",
    "graph__stages__vision__options": {"kinds": "zebra", "base_s": 0.001},
}
"""Flags of a server that sees a zebra in everything."""


def jpeg(number: int = 0, width: int = 160, height: int = 120) -> bytes:
    """Scene `number`: light bars on a dark ground, elsewhere in each."""
    image = Image.new("RGB", (width, height), (20, 20, 30))
    draw = ImageDraw.Draw(image)
    for bar in range(3):
        left = (number * 37 + bar * 50) % width
        draw.rectangle((left, 0, left + width // 8, height), (230, 60 * bar + 80, 40))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80)
    return out.getvalue()


def shot(picture: bytes, **fields: object) -> Event:
    """`input_image_buffer.append`."""
    image = base64.b64encode(picture).decode()
    return {"type": "input_image_buffer.append", "image": image, **fields}


def counted(server: Server) -> dict[str, float]:
    """Frames by reason."""
    found: dict[str, float] = {}
    for line in server.metrics.render().decode().splitlines():
        if line.startswith(f"{PREFIX}_video_frames_total{{"):
            reason = line.partition('reason="')[2].partition('"')[0]
            found[reason] = found.get(reason, 0.0) + float(line.rpartition(" ")[2])
    return {reason: count for reason, count in found.items() if count}


CLEAR = {"type": "input_image_buffer.clear"}
SEEN, CLEARED = "input_image_buffer.seen", "input_image_buffer.cleared"


def with_video(server: Server) -> str:
    """The URL of a session that opts in."""
    assert server.address is not None
    return f"{server.address.ws}?extensions=video"


async def opt_in(caller: Caller, **chosen: object) -> Event:
    """What the session then says of video."""
    session = await caller.update({"extensions": {"video": chosen}})
    shown: Event = session["extensions"]["video"]
    return shown


async def look(caller: Caller, number: int) -> Event:
    """Show a scene and wait until it was looked at; of a session with reports. Shown again where it came too soon after another."""
    start = len(caller.events)
    while not caller.of(SEEN, start):
        await caller.send(shot(jpeg(number)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await caller.wait(SEEN, start)
    return caller.of(SEEN, start)[0]
