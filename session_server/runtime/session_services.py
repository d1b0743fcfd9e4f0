"""What every session of a server shares. `post` hands a message to the engine host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from session_server.audio.echo_guard import EchoGuard
from session_server.audio.vad import VoiceActivity
from session_server.core.settings import CoreParams, Hearing
from session_server.host.messages import ToHost
from session_server.observability.metrics import Metrics
from session_server.process.clock import Clock
from session_server.process.threads import SideThread
from session_server.protocol.session_config import SessionRules
from session_server.recording.recorder import Recorder
from session_server.runtime.loop_load import LoopLoad
from session_server.types.ids import NewId


@dataclass(frozen=True, slots=True)
class SessionServices:
    """See the module docstring."""

    rules: SessionRules
    params: CoreParams
    clock: Clock
    new_id: NewId
    metrics: Metrics
    post: Callable[[ToHost], None]
    make_vad: Callable[[], VoiceActivity]
    make_echo_guard: Callable[[], EchoGuard | None]
    recorder: Recorder | None = None
    hearing: Hearing = field(default_factory=Hearing)
    sees: bool = False
    side_thread: SideThread = field(default_factory=SideThread)
    loop_load: LoopLoad = field(default_factory=LoopLoad)
