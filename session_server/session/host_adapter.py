"""Core values to messages and back: the session's side of the seam to the engine host.

Only spelling: no state, no decisions. Input audio is fetched here because the core names it by position.
"""

from __future__ import annotations

from msgspec.structs import replace

from session_server.core import actions, events
from session_server.host import messages
from session_server.protocol.values import decode_base64
from session_server.session.input_timeline import InputTimeline
from session_server.transports.base import AudioSent
from session_server.types.audio import NS_PER_MS
from session_server.types.prompt import PromptMessage, UserAudio
from session_server.types.usage import TokenUsage

HostCommand = (
    actions.RecogniseRange | actions.JudgeRange | actions.AnalyseImage | messages.HostRequest
)

PARTIAL_DUE_MS = 400
FINAL_DUE_MS = 150
JUDGEMENT_DUE_MS = 150
PICTURE_DUE_MS = 500
FRAME_DUE_MS = 300
"""Of the camera: what an answer waits for a fresh one."""


def to_host(session: str, command: HostCommand, audio: InputTimeline, now: int) -> messages.ToHost:
    """The message that carries out `command`."""
    match command:
        case actions.RecogniseRange(work_id, start, end, partial, item_id, index):
            due = now + (PARTIAL_DUE_MS if partial else FINAL_DUE_MS) * NS_PER_MS
            if item_id is None:
                sound = audio.heard(start, end)
            else:
                sound = audio.take_inline(item_id, index)
            return messages.Recognise(session, work_id, sound, partial, due)
        case actions.JudgeRange(work_id, start, end):
            due = now + JUDGEMENT_DUE_MS * NS_PER_MS
            return messages.JudgeTurn(session, work_id, audio.heard(start, end), due)
        case actions.AnalyseImage(work_id, image_url):
            picture = decode_base64(image_url.partition(",")[2], "image_url")
            return messages.LookAt(session, work_id, picture, now + PICTURE_DUE_MS * NS_PER_MS)
        case actions.StartGeneration():
            return messages.FromSession(session, _start(command, audio))
        case actions.WarmPrefix(work_id, instructions, prompt, tools, choice):
            warm = actions.WarmPrefix(work_id, instructions, _prompt(prompt, audio), tools, choice)
            return messages.FromSession(session, warm)
        case _:
            return messages.FromSession(session, command)


def look_at_frame(
    session: str, command: actions.LookAtFrame, picture: bytes, now: int
) -> messages.LookAt:
    """The message that has a camera frame looked at; its bytes are the shell's to find."""
    due = now + FRAME_DUE_MS * NS_PER_MS
    return messages.LookAt(session, command.work_id, picture, due, command.read, camera=True)


def _prompt(entries: tuple[PromptMessage, ...], audio: InputTimeline) -> tuple[PromptMessage, ...]:
    """A message whose sound is not kept any more is its words, where they are known, else it is left out."""
    prompt = []
    for m in entries:
        if isinstance(m.audio, UserAudio):
            m = replace(m, audio=_sound(m.audio, audio) or None)
        if m.audio or m.content:
            prompt.append(m)
    return tuple(prompt)


def _sound(said: UserAudio, audio: InputTimeline) -> bytes:
    if said.item_id is None:
        return audio.heard(said.start_sample, said.end_sample)
    return audio.kept(said.item_id, said.content_index)


def _start(command: actions.StartGeneration, audio: InputTimeline) -> actions.StartGeneration:
    """Field by field: the simulation compiles this module, and there is no `replace` for what is compiled."""
    return actions.StartGeneration(
        command.response_id,
        command.lane,
        command.epoch,
        command.instructions,
        _prompt(command.messages, audio),
        command.tools,
        command.tool_choice,
        command.modality,
        command.voice,
        command.speed,
        command.max_output_tokens,
        command.turn_end_ns,
    )


def audio_written(sent: AudioSent, heard_ns: int) -> events.AudioWritten:
    """What a transport that plays says of a piece that has left, and will have been heard at that instant."""
    return events.AudioWritten(
        sent.response_id, sent.end_sample, heard_ns, sent.estimated, sent.gap_samples
    )


def from_host(message: messages.ToSession) -> events.EngineEvent | None:
    """What the message means to the core; None for what this core never sees."""
    match message:
        case messages.TextChunk():
            return events.TextGenerated(message.response, message.text)
        case messages.Chunk():
            return events.AudioGenerated(message.response, message.start_sample, message.pcm)
        case messages.RecognitionDone():
            return events.TranscriptReady(message.work_id, message.text)
        case messages.TurnJudged():
            return events.TurnJudged(message.work_id, message.probability)
        case messages.PictureSeen():
            return events.PictureSeen(
                message.work_id, message.text, message.evidence, message.kinds, message.written
            )
        case messages.WorkFailed():
            return events.WorkFailed(message.work_id, message.code, message.message)
        case messages.Clause():
            return _clause(message)
        case messages.CallStarted():
            return events.CallStarted(message.response, message.index, message.name)
        case messages.CallArguments():
            return events.CallArguments(message.response, message.index, message.arguments)
        case messages.CallFinished():
            return events.CallFinished(message.response, message.index)
        case messages.Finished():
            return _finished(message)
        case messages.Failed():
            return events.GenerationFailed(message.response, message.code, message.message)
        case messages.SessionOpened() | messages.SessionRefused():
            return None
        case messages.DuplexFrame() | messages.DuplexLost():
            return None  # a `DuplexTask` takes them itself


def _clause(message: messages.Clause) -> events.ClauseSpoken:
    return events.ClauseSpoken(
        message.response,
        message.char_start,
        message.char_end,
        message.start_sample,
        message.end_sample,
        message.words,
        message.estimated,
    )


def _finished(message: messages.Finished) -> events.GenerationFinished:
    usage = TokenUsage(
        input_text=message.prompt_tokens,
        input_cached=message.cached_tokens,
        output_text=message.output_tokens,
        output_audio=message.audio_tokens,
    )
    return events.GenerationFinished(message.response, message.reason, usage)
