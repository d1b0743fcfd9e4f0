"""Every metric of the server: name, kind, help, unit, labels and buckets, in this one file.

Names here are without the prefix `session_server_`; a counter's exposed name ends in `_total`. Base units
only (seconds, bytes). A label's values come from an enum; a label without one (`None`) takes values that
another module's enum fixes (stages, turn states, error codes), so every label's range is bounded.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from session_server.core.playback_ledger import AckOutcome
from session_server.scheduler.admission import OverloadStep
from session_server.scheduler.residency_events import PreloadResult

PREFIX = "session_server"


class MetricKind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class SessionOutcome(enum.StrEnum):
    """Why an admitted session ended."""

    CLOSED = "closed"
    LOST = "lost"
    EXPIRED = "expired"
    DRAINED = "drained"
    SLOW_READER = "slow_reader"
    FAULT = "fault"


class Origin(enum.StrEnum):
    """Where a time at the listener comes from; figures of two origins are never mixed."""

    CLIENT_ACK = "client_ack"
    SERVER_ESTIMATE = "server_estimate"
    SIMULATION = "simulation"


class FrontierSource(enum.StrEnum):
    """What the listener's place rests on."""

    CLIENT = "client"
    ESTIMATE = "estimate"


class CallPath(enum.StrEnum):
    """How a call's audio travels: our own way past aiortc, or aiortc's."""

    CHEAP = "cheap"
    STOCK = "stock"


class TurnLeg(enum.StrEnum):
    """Where the time of a turn goes, from the user's last voiced sample to the first chunk of speech."""

    ENDPOINT = "endpoint"
    ASR = "asr"
    ADMISSION = "admission"
    PREFILL = "prefill"
    FIRST_CLAUSE = "first_clause"
    FIRST_CHUNK = "first_chunk"


class StopLeg(enum.StrEnum):
    """Legs of an interruption: detect, duck and fence from the onset of speech; last_byte and silent from the fence.
    `silent` is the client's last word about the answer, and needs the playback extension."""

    DETECT = "detect"
    DUCK = "duck"
    FENCE = "fence"
    LAST_BYTE = "last_byte"
    SILENT = "silent"


class InterruptionKind(enum.StrEnum):
    TRUE = "true"
    FALSE_RESUMED = "false_resumed"
    BACKCHANNEL = "backchannel"
    REFUSED = "refused"


class DraftOutcome(enum.StrEnum):
    STARTED = "started"
    ADOPTED = "adopted"
    DROPPED = "dropped"


class WasteWhere(enum.StrEnum):
    """How far thrown-away audio had come; `draft`: made for a draft that was dropped."""

    DRAFT = "draft"
    CODEC = "codec"
    VOCODED = "vocoded"
    SENT = "sent"


class ResponseStatus(enum.StrEnum):
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


class SchedulingClass(enum.StrEnum):
    """What a session waits for most, most pressing first; `final`: an answer in text."""

    FINAL = "final"
    FIRST_AUDIO = "first_audio"
    PLAYING = "playing"
    DRAFT = "draft"
    IDLE = "idle"


class PredictedLoad(enum.StrEnum):
    """Of what admission predicts."""

    ANSWERS = "answers"
    UNCOUNTED = "uncounted"


class MissedTick(enum.StrEnum):
    """How a tick of a duplex model was missed."""

    LATE = "late"
    SKIPPED = "skipped"


class SlotState(enum.StrEnum):
    TAKEN = "taken"
    FREE = "free"


class DuplexPlace(enum.StrEnum):
    """Where a session of a duplex model is."""

    SEATED = "seated"
    RESTING = "resting"
    WAITING = "waiting"


class FrameReason(enum.StrEnum):
    """Why a camera frame was looked at, or why it was not."""

    CHANGE = "change"
    HEARTBEAT = "heartbeat"
    FORCED = "forced"
    GATE = "gate"
    RATE = "rate"
    REPLACED = "replaced"
    STALE = "stale"
    TOO_LARGE = "too_large"
    UNDECODABLE = "undecodable"

    @property
    def kept(self) -> str:
        """The value of the label `kept` that goes with it."""
        looked_at = (FrameReason.CHANGE, FrameReason.HEARTBEAT, FrameReason.FORCED)
        return "yes" if self in looked_at else "no"


@dataclass(frozen=True, slots=True)
class Label:
    """A label; `values` None: another module's enum fixes them."""

    name: str
    values: type[enum.StrEnum] | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric. `name` is its attribute on `Metrics` and the key of `Metrics.count`. `greatest`: of several processes the one
    with the most counts, else their sum."""

    kind: MetricKind
    name: str
    unit: str
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    greatest: bool = False

    @property
    def exposed_name(self) -> str:
        suffix = "_total" if self.kind is MetricKind.COUNTER else ""
        return f"{PREFIX}_{self.name}{suffix}"


LATENCY = (
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.45,
    0.55,
    0.7,
    0.9,
    1.2,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
)
LEG = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.8, 1.2, 2.0, 5.0)
STEP = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
LATENESS = (-2.0, -1.0, -0.5, -0.2, -0.1, -0.05, 0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
LEAD = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0)
AGE = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
LAG = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
SEND_LATENESS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
LENGTH = (5, 15, 30, 60, 120, 300, 600, 1800, 3600)
BATCH = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
FRAMES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256)

_STAGE = Label("stage")


def _counter(name: str, unit: str, text: str, *labels: Label) -> Spec:
    return Spec(MetricKind.COUNTER, name, unit, text, labels)


def _gauge(name: str, unit: str, text: str, *labels: Label, greatest: bool = False) -> Spec:
    return Spec(MetricKind.GAUGE, name, unit, text, labels, greatest=greatest)


def _histogram(name: str, unit: str, text: str, buckets: tuple[float, ...], *labels: Label) -> Spec:
    return Spec(MetricKind.HISTOGRAM, name, unit, text, labels, buckets)


SESSION_SPECS = (
    _gauge("sessions_active", "sessions", "Sessions that are admitted and open now."),
    _counter("sessions", "sessions", "Admitted sessions that ended, by outcome.", Label("outcome", SessionOutcome)),
    _counter("sessions_rejected", "sessions", "Connections refused before a session began, by reason.", Label("reason")),
    _histogram("session_seconds", "seconds", "Length of ended sessions.", LENGTH),
    _counter("responses", "responses", "Responses that ended, by their final status.", Label("status", ResponseStatus)),
    _counter("client_errors", "events", "Error events sent to clients, by code.", Label("code")),
    _counter("stuck_sessions", "sessions", "Sessions that a deadline moved out of a state, by state. Should stay 0.", Label("state")),
    _gauge("input_backlog_seconds", "seconds", "Input received and not yet heard, as seconds of audio, in the session with the most.", greatest=True),
    _gauge("outbox_bytes", "bytes", "Bytes queued towards clients, all sessions together."),
)  # fmt: skip

TURN_SPECS = (
    _histogram("turn_first_audio_seconds", "seconds", "User's last voiced sample to first audible sample at the listener. No sample without a user turn.", LATENCY, Label("origin", Origin)),
    _histogram("response_first_audio_seconds", "seconds", "Turn end decided to first audible sample at the listener.", LATENCY, Label("origin", Origin)),
    _histogram("turn_stage_seconds", "seconds", "Where the time of a turn goes, by leg, each from the end of the one before.", LEG, Label("leg", TurnLeg)),
    _histogram("endpointing_delay_seconds", "seconds", "User's last voiced sample to turn end decided.", LATENCY),
    _histogram("interruption_stop_seconds", "seconds", "Legs of a barge-in: detect, duck and fence from the onset of speech; last_byte and silent (as the client says) from the fence.", LEG, Label("leg", StopLeg)),
    _counter("interruptions", "interruptions", "Speech over an answer: true barge-ins, pauses that were undone (a backchannel or another sound), and those refused.", Label("kind", InterruptionKind)),
    _counter("drafts", "drafts", "Speculative responses begun before the end of turn was decided, by outcome.", Label("outcome", DraftOutcome)),
    _counter("draft_wasted_seconds", "seconds", "Time that dropped drafts had been running: the cost of starting early."),
    _histogram("response_first_chunk_seconds", "seconds", "Turn end decided to the first chunk out of the vocoder; 0 when a draft had it ready.", LEG, Label("drafted")),
)  # fmt: skip

PLAYBACK_SPECS = (
    _counter("playback_underruns", "gaps", "Gaps inside responses at the listener."),
    _counter("playback_underrun_seconds", "seconds", "Total length of gaps at the listener."),
    _histogram("playback_lead_seconds", "seconds", "Audio sent and not yet played, seen whenever the frontier is reported.", LEAD),
    _histogram("send_lateness_seconds", "seconds", "Hand-over of a piece of audio minus the instant the listener needs it; above 0 is late.", LATENESS),
    _histogram("frontier_report_age_seconds", "seconds", "Age of the last acknowledgement of played audio when the scheduler is told the frontier; only of clients that acknowledge.", AGE),
    _counter("frontier_fallbacks", "events", "Times that acknowledgements stopped and the frontier fell back to an estimate."),
    _counter("frontier_cuts", "answers", "Answers that were cut, by where the listener's place came from: reports of the client, or an estimate.", Label("source", FrontierSource)),
    _gauge("webrtc_calls", "calls", "WebRTC calls that have audio now, by the path that carries it.", Label("path", CallPath)),
    _histogram("webrtc_send_lateness_seconds", "seconds", "A frame of a WebRTC call leaving, minus the instant it was due; above `webrtc.max_lateness_ms` at p99 new calls are refused.", SEND_LATENESS),
    _counter("webrtc_video_frames", "frames", "Frames of video tracks that were decoded and given to their session."),
    _counter("webrtc_video_faults", "calls", "Calls whose video ended by a fault of ours; the call goes on."),
    _counter("playback_acks", "events", "Playback acknowledgements, by what became of them; all but accepted and clamped are refused.", Label("outcome", AckOutcome)),
    _counter("audio_generated_seconds", "seconds", "Output audio that left the vocoder."),
    _counter("audio_sent_seconds", "seconds", "Output audio handed to the transport."),
    _counter("audio_wasted_seconds", "seconds", "Audio that was never heard, of cancelled responses and dropped drafts, by how far it had come.", Label("where", WasteWhere)),
    _counter("stale_outputs", "outputs", "Output of an old epoch, dropped where it was met: a stage, the host, a session, the outbox.", Label("boundary")),
)  # fmt: skip

STAGE_SPECS = (
    _histogram("stage_step_seconds", "seconds", "Wall time of one engine step.", STEP, _STAGE),
    _histogram("stage_batch_size", "jobs", "Jobs advanced by one engine step.", BATCH, _STAGE),
    _gauge("stage_queue_depth", "jobs", "Jobs waiting for the stage.", _STAGE),
    _counter("stage_starved_steps", "steps", "Times a stage had free slots while all its work waited for credit downstream.", _STAGE),
    _counter("stage_failures", "failures", "Engines that threw, hung or could not be loaded; each is restarted.", _STAGE, Label("kind")),
    _histogram("recognition_seconds", "seconds", "Recognition or judgement of a piece of speech, queue included.", STEP, _STAGE, Label("partial")),
    _counter("works_dropped", "works", "Recognitions and judgements that were given up, by reason.", _STAGE, Label("reason")),
    _counter("runaway_answers", "responses", "Answers ended because they were too long for their text, or silent.", Label("kind")),
    _counter("tokens_wasted", "tokens", "Tokens of the thinker behind what was heard, by where they were lost (draft, cancelled, runaway).", Label("where")),
    _counter("prompt_tokens", "tokens", "Prompt tokens of whole answers: read, or cached, that is known from the session's last turn or a prefix that sessions share.", Label("source")),
    _gauge("engine_answers", "answers", "Answers in a thinker that schedules itself: running, waiting, or held at the end of what they were lent.", Label("state")),
    _gauge("engine_state_used_ratio", "ratio", "Share of the memory for state that answers hold in a thinker that schedules itself."),
    _histogram("chunk_frames", "frames", "Chunk size chosen for a step of a speech stage.", FRAMES, _STAGE),
    _gauge("scheduler_sessions", "sessions", "Open sessions by the most pressing of their responses.", Label("class", SchedulingClass)),
    _counter("admission_decisions", "decisions", "Admission decisions, with the reason of each.", Label("decision"), Label("reason")),
    _gauge("admission_load", "ratio", "Predicted load of the open sessions; beyond 1 no session is let in."),
    _gauge("admission_work_cores", "cores", "What the open sessions are expected to take: the steps of their answers, and what no stage counts.", Label("work", PredictedLoad)),
    _gauge("admission_capacity_cores", "cores", "What sessions may take: cores, times utilisation, times the room that admission gives."),
    _gauge("overload_step", "steps", "1 for the step of the overload ladder that is in force.", Label("step", OverloadStep)),
    _gauge("kv_blocks", "blocks", "Blocks of the thinker's cache, by state; a slot is one block where state is moved whole.", Label("state")),
    _counter("kv_evictions", "evictions", "Session states moved out of the cache, by reason; room and preload: to host memory; host_full and failed: lost.", Label("reason")),
    _histogram("kv_reload_seconds", "seconds", "Time to bring a session's state back; critical when an answer waited for it.", LEG, Label("critical")),
    _counter("kv_preloads", "preloads", "Preloads of session state, by result.", Label("result", PreloadResult)),
    _counter("kv_preload_bytes", "bytes", "Bytes moved by preloads, by result.", Label("result", PreloadResult)),
    _counter("video_frames", "frames", "Camera frames, each once: looked at (kept) and why, or dropped and why.", Label("kept"), Label("reason", FrameReason)),
    _histogram("video_evidence_age_seconds", "seconds", "Age of the newest frame that an answer could see.", AGE),
)  # fmt: skip

DUPLEX_SPECS = (
    _counter("duplex_ticks", "ticks", "Ticks of a duplex model, each one batch over all live sessions."),
    _counter("duplex_ticks_missed", "ticks", "Ticks of a duplex model that ended after the next one was due (late), or did not take place (skipped).", Label("kind", MissedTick)),
    _counter("duplex_frames_filled", "frames", "Frames of silence that a duplex model heard because a user's audio was late or lost."),
    _counter("duplex_input_dropped_samples", "samples", "Samples of users' audio that came too late or too fast for a duplex model, and were dropped."),
    _gauge("duplex_slots", "slots", "Slots of a duplex model, by whether a session has them.", Label("state", SlotState)),
    _gauge("duplex_sessions", "sessions", "Sessions of a duplex model: with a slot, resting without one, or waiting for one.", Label("place", DuplexPlace)),
    _gauge("duplex_saved_bytes", "bytes", "Saved states of resting conversations."),
    _counter("duplex_slots_given_up", "slots", "Slots that a session in which nothing was said gave up for another."),
    _counter("duplex_slot_waits_missed", "sessions", "Sessions that spoke again, and got no slot within their limit."),
    _histogram("duplex_slot_wait_seconds", "seconds", "From speaking again to a slot, for sessions that rested.", LATENCY),
)  # fmt: skip

PROCESS_SPECS = (
    _histogram("event_loop_lag_seconds", "seconds", "How late a timer of the event loop fires.", LAG),
    _counter("unknown_counts", "events", "Measurements whose name or label is not in this catalogue: a bug."),
    _gauge("build_info", "info", "Always 1; the labels say what runs.", Label("version"), Label("python"), Label("config"), greatest=True),
    _counter("worker_ends", "processes", "Worker processes that ended though the server goes on; each was begun again."),
)  # fmt: skip

SPECS: tuple[Spec, ...] = (
    *SESSION_SPECS,
    *TURN_SPECS,
    *PLAYBACK_SPECS,
    *STAGE_SPECS,
    *DUPLEX_SPECS,
    *PROCESS_SPECS,
)
