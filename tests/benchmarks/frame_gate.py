"""What the frame gate keeps, and what it costs: `python -m tests.benchmarks.frame_gate [--seconds 20] [CLIP ...]`.

Drawn scenes of 640x480 at 30 fps, then the clips; of each, frames kept without a least gap and with the usual one. Times are CPU time on
one thread, medians: the gate itself, the grid out of a plane of luma (a decoded video track), and all of it out of a JPEG.
"""

from __future__ import annotations

import argparse
import io
import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from PIL import Image

from session_server.video.frame_gate import EncodedPicture, FrameGate, GateLimits, grid
from session_server.video.picture_limits import LumaGrid
from tests.camera_scenes import SCENES, Plane, scene

TIMED = 60
"""Frames of each clip that are timed."""


def clip(path: Path) -> Iterator[tuple[float, Plane]]:
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            assert frame.time is not None
            yield frame.time, frame.to_ndarray(format="gray")


def kept(grids: list[tuple[float, LumaGrid]], least_gap_ns: int) -> list[tuple[float, str]]:
    """Instants and reasons."""
    gate = FrameGate(GateLimits(least_gap_ns=least_gap_ns))
    verdicts = ((t, gate.decide(g, round(t * 1e9))) for t, g in grids)
    return [(t, verdict.value) for t, verdict in verdicts if verdict.kept]


def jpeg(plane: Plane) -> bytes:
    out = io.BytesIO()
    Image.merge(
        "YCbCr", [Image.fromarray(p) for p in (plane, *(np.full_like(plane, 128),) * 2)]
    ).save(out, "JPEG", quality=80)
    return out.getvalue()


def cpu_ms(planes: list[Plane]) -> tuple[float, float, float]:
    """Gate, grid, and both out of a JPEG."""
    gate, gates, grids, whole = FrameGate(), [], [], []
    for i, plane in enumerate(planes):
        frame = EncodedPicture(jpeg(plane), 1 << 24)
        at = [time.thread_time()]
        small = grid(plane)
        at.append(time.thread_time())
        gate.decide(small, i)
        at.append(time.thread_time())
        gate.decide(frame.luma(), i)
        at.append(time.thread_time())
        grids.append(at[1] - at[0])
        gates.append(at[2] - at[1])
        whole.append(at[3] - at[2])
    return tuple(1e3 * statistics.median(times) for times in (gates, grids, whole))  # type: ignore[return-value]


def report(name: str, frames: Iterator[tuple[float, Plane]]) -> None:
    first = list(itertools.islice(frames, TIMED))
    grids = [(t, grid(plane)) for t, plane in itertools.chain(first, frames)]
    eager, usual = kept(grids, 0), kept(grids, GateLimits().least_gap_ns)
    dropped = 100 * (1 - len(usual) / len(grids))
    gate_ms, grid_ms, jpeg_ms = cpu_ms([plane for _, plane in first])
    beats = sum(reason == "heartbeat" for _, reason in usual)
    when = ", ".join(f"{t:.2f}" for t, _ in usual) if len(usual) < 8 else "-"
    print(
        f"| {name} | {len(eager)} of {len(grids)} | {len(usual)} ({beats}) | {dropped:.1f} % | {when} "
        f"| {1e3 * gate_ms:.0f} | {grid_ms:.2f} | {jpeg_ms:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("clips", nargs="*", type=Path)
    options = parser.parse_args()
    print(
        "| clip | kept, no gap | kept, gap 0.25 s (heartbeats) | dropped | kept at, s | gate, us | grid, ms | JPEG to verdict, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kind, words in SCENES.items():
        report(words, scene(kind, options.seconds))
    for path in options.clips:
        frames = clip(path)
        head = next(frames)
        height, width = head[1].shape
        report(f"{path.name}, {width}x{height}", itertools.chain([head], frames))


if __name__ == "__main__":
    main()
