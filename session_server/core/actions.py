"""What a session wants done: imperative values that `Session.handle` returns, in the order to carry out.

Two kinds. *Announcements* become exactly one wire event each, in this order, without buffering or
merging (the shell only spells them). *Commands* go to the engine host, the transport or the timer.
"""

from __future__ import annotations

from session_server.core.announcements import (
    AnnounceAudioDone as AnnounceAudioDone,
    AnnounceCallDelta as AnnounceCallDelta,
    AnnounceCallDone as AnnounceCallDone,
    AnnounceCommitted as AnnounceCommitted,
    AnnounceError as AnnounceError,
    AnnounceIdleTimeout as AnnounceIdleTimeout,
    AnnounceInputCleared as AnnounceInputCleared,
    AnnounceItemAdded as AnnounceItemAdded,
    AnnounceItemDeleted as AnnounceItemDeleted,
    AnnounceItemDone as AnnounceItemDone,
    AnnounceItemRetrieved as AnnounceItemRetrieved,
    Announcement as Announcement,
    AnnounceMute as AnnounceMute,
    AnnounceOutputCleared as AnnounceOutputCleared,
    AnnounceOutputItemAdded as AnnounceOutputItemAdded,
    AnnounceOutputItemDone as AnnounceOutputItemDone,
    AnnounceOutputStarted as AnnounceOutputStarted,
    AnnounceOutputStopped as AnnounceOutputStopped,
    AnnouncePartAdded as AnnouncePartAdded,
    AnnouncePartDone as AnnouncePartDone,
    AnnouncePlay as AnnouncePlay,
    AnnouncePlaybackAcknowledged as AnnouncePlaybackAcknowledged,
    AnnounceRateLimits as AnnounceRateLimits,
    AnnounceResponseCreated as AnnounceResponseCreated,
    AnnounceResponseDone as AnnounceResponseDone,
    AnnounceSettings as AnnounceSettings,
    AnnounceSpeechStarted as AnnounceSpeechStarted,
    AnnounceSpeechStopped as AnnounceSpeechStopped,
    AnnounceTextDelta as AnnounceTextDelta,
    AnnounceTextDone as AnnounceTextDone,
    AnnounceTranscript as AnnounceTranscript,
    AnnounceTranscriptDelta as AnnounceTranscriptDelta,
    AnnounceTranscriptFailed as AnnounceTranscriptFailed,
    AnnounceTruncated as AnnounceTruncated,
    PartAddress as PartAddress,
    ResponseView as ResponseView,
    Usage as Usage,
)
from session_server.core.commands import (
    AdoptDraft as AdoptDraft,
    CancelGeneration as CancelGeneration,
    CancelWork as CancelWork,
    CloseConnection as CloseConnection,
    Command as Command,
    Count as Count,
    ForgetInput as ForgetInput,
    HoldAudio as HoldAudio,
    JudgeTurn as JudgeTurn,
    LookAt as LookAt,
    PromptMessage as PromptMessage,
    PurgeAudio as PurgeAudio,
    RaiseFence as RaiseFence,
    Recognise as Recognise,
    ReleaseAudio as ReleaseAudio,
    ReportFrontier as ReportFrontier,
    SendAudio as SendAudio,
    StartGeneration as StartGeneration,
    UserAudio as UserAudio,
    WarmPrefix as WarmPrefix,
)

Action = Announcement | Command
