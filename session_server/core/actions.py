"""What a session wants done: imperative values that `Session.handle` returns, in the order to carry out.

Two kinds. *Announcements* become exactly one wire event each, in this order, without buffering or
merging (the shell only spells them). *Commands* go to the engine host, the transport or the timer.
"""

from __future__ import annotations

from session_server.core.announcements import (
    AnnounceAudioDone as AnnounceAudioDone,
)
from session_server.core.announcements import (
    AnnounceCallDelta as AnnounceCallDelta,
)
from session_server.core.announcements import (
    AnnounceCallDone as AnnounceCallDone,
)
from session_server.core.announcements import (
    AnnounceCommitted as AnnounceCommitted,
)
from session_server.core.announcements import (
    AnnounceError as AnnounceError,
)
from session_server.core.announcements import (
    AnnounceIdleTimeout as AnnounceIdleTimeout,
)
from session_server.core.announcements import (
    AnnounceInputCleared as AnnounceInputCleared,
)
from session_server.core.announcements import (
    AnnounceItemAdded as AnnounceItemAdded,
)
from session_server.core.announcements import (
    AnnounceItemDeleted as AnnounceItemDeleted,
)
from session_server.core.announcements import (
    AnnounceItemDone as AnnounceItemDone,
)
from session_server.core.announcements import (
    AnnounceItemRetrieved as AnnounceItemRetrieved,
)
from session_server.core.announcements import (
    Announcement as Announcement,
)
from session_server.core.announcements import (
    AnnounceMute as AnnounceMute,
)
from session_server.core.announcements import (
    AnnounceOutputCleared as AnnounceOutputCleared,
)
from session_server.core.announcements import (
    AnnounceOutputItemAdded as AnnounceOutputItemAdded,
)
from session_server.core.announcements import (
    AnnounceOutputItemDone as AnnounceOutputItemDone,
)
from session_server.core.announcements import (
    AnnounceOutputStarted as AnnounceOutputStarted,
)
from session_server.core.announcements import (
    AnnounceOutputStopped as AnnounceOutputStopped,
)
from session_server.core.announcements import (
    AnnouncePartAdded as AnnouncePartAdded,
)
from session_server.core.announcements import (
    AnnouncePartDone as AnnouncePartDone,
)
from session_server.core.announcements import (
    AnnouncePlay as AnnouncePlay,
)
from session_server.core.announcements import (
    AnnouncePlaybackAcknowledged as AnnouncePlaybackAcknowledged,
)
from session_server.core.announcements import (
    AnnounceRateLimits as AnnounceRateLimits,
)
from session_server.core.announcements import (
    AnnounceResponseCreated as AnnounceResponseCreated,
)
from session_server.core.announcements import (
    AnnounceResponseDone as AnnounceResponseDone,
)
from session_server.core.announcements import (
    AnnounceSettings as AnnounceSettings,
)
from session_server.core.announcements import (
    AnnounceSpeechStarted as AnnounceSpeechStarted,
)
from session_server.core.announcements import (
    AnnounceSpeechStopped as AnnounceSpeechStopped,
)
from session_server.core.announcements import (
    AnnounceTextDelta as AnnounceTextDelta,
)
from session_server.core.announcements import (
    AnnounceTextDone as AnnounceTextDone,
)
from session_server.core.announcements import (
    AnnounceTranscript as AnnounceTranscript,
)
from session_server.core.announcements import (
    AnnounceTranscriptDelta as AnnounceTranscriptDelta,
)
from session_server.core.announcements import (
    AnnounceTranscriptFailed as AnnounceTranscriptFailed,
)
from session_server.core.announcements import (
    AnnounceTruncated as AnnounceTruncated,
)
from session_server.core.announcements import (
    PartAddress as PartAddress,
)
from session_server.core.announcements import (
    ResponseView as ResponseView,
)
from session_server.core.announcements import (
    Usage as Usage,
)
from session_server.core.commands import (
    AdoptDraft as AdoptDraft,
)
from session_server.core.commands import (
    CancelGeneration as CancelGeneration,
)
from session_server.core.commands import (
    CancelWork as CancelWork,
)
from session_server.core.commands import (
    CloseConnection as CloseConnection,
)
from session_server.core.commands import (
    Command as Command,
)
from session_server.core.commands import (
    Count as Count,
)
from session_server.core.commands import (
    ForgetInput as ForgetInput,
)
from session_server.core.commands import (
    JudgeTurn as JudgeTurn,
)
from session_server.core.commands import (
    PromptMessage as PromptMessage,
)
from session_server.core.commands import (
    PurgeAudio as PurgeAudio,
)
from session_server.core.commands import (
    RaiseFence as RaiseFence,
)
from session_server.core.commands import (
    Recognise as Recognise,
)
from session_server.core.commands import (
    ReportFrontier as ReportFrontier,
)
from session_server.core.commands import (
    SendAudio as SendAudio,
)
from session_server.core.commands import (
    StartGeneration as StartGeneration,
)

Action = Announcement | Command
