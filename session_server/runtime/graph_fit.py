"""Whether the engines of a graph fit together, which only loaded engines can tell: who hears, who sees, who makes frames, and how many
frames a chunk takes."""

from __future__ import annotations

from collections.abc import Mapping

from engines.base import Capabilities, Stage
from engines.graph import Graph
from session_server.types.errors import ConfigError


def require_fit(graph: Graph, able: Mapping[Stage, Capabilities | None]) -> None:
    """Raise ConfigError, one line that names the key, unless the graph's shape is what its engines can do."""
    thinker, talker = able.get(Stage.THINKER), able.get(Stage.TALKER)
    spec = graph.stage(Stage.THINKER)
    if spec is not None and thinker is not None and spec.hears and not thinker.hears:
        raise ConfigError(f"graph.stages.thinker.hears: {spec.engine} takes no audio")
    _require_sight(graph, able)
    spec = graph.stage(Stage.TALKER)
    if spec is None or talker is None:
        return
    has_codec = graph.stage(Stage.CODEC) is not None
    if talker.streams_text and has_codec:
        raise ConfigError(
            f"graph.stages.codec: {spec.engine} makes frames for the vocoder itself; leave the codec out"
        )
    if not talker.streams_text and not has_codec:
        raise ConfigError(f"graph.stages.codec: this stage is missing; {spec.engine} needs it")
    vocoder = able.get(Stage.VOCODER)
    if talker.streams_text and vocoder is not None:
        needed = vocoder.chunk.units + vocoder.chunk.ahead
        if graph.capacity(Stage.TALKER, Stage.VOCODER) < needed:
            raise ConfigError(
                f"graph.edges: talker -> vocoder: capacity must be at least {needed}, which the smallest chunk takes"
            )


def _require_sight(graph: Graph, able: Mapping[Stage, Capabilities | None]) -> None:
    spec, thinker = graph.stage(Stage.VISION), graph.stage(Stage.THINKER)
    eyes, mind = able.get(Stage.VISION), able.get(Stage.THINKER)
    if spec is None or thinker is None or eyes is None or mind is None:
        return
    if eyes.sees and not mind.sees:
        raise ConfigError(
            f"graph.stages.vision: {spec.engine} embeds pictures for a thinker of the same model; {thinker.engine} takes none"
        )
