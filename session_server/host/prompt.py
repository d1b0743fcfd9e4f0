"""What the thinker reads: prompts in the engines' contract, evidence of pictures, prefix prefill.

Sure and unsure things are kept apart, and "none" is said where nothing was found: a model that is told nothing makes
something up.

While a user speaks, the thinker reads what the next prompt will begin with. Owns at most one such job per session. It gives nothing but warmth: the session's slot then knows the prefix, and the
answer's own job reads only what is new. Ranked with the drafts, below all that anyone waits for; ended by the
session's next response, which takes over the slot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from engines.base import (
    PICTURE_MARK,
    EmbeddedPicture,
    JobKey,
    Stage,
    StepResult,
    ThinkJob,
    VisualEvidence,
)
from session_server.core.actions import StartGeneration, WarmPrefix
from session_server.core.settings import Modality
from session_server.host.pipeline_parts import HostStages
from session_server.scheduler.work import FOREVER_NS, WorkClass, WorkItem
from session_server.types.prompt import PromptMessage

_PLACES = 3
"""Of one kind; a crowd is a number."""
_TAME = str.maketrans({'"': "'", "[": "(", "]": ")"})


def described(evidence: VisualEvidence) -> str:
    """One line, without the picture's age, which only the caller knows."""
    if evidence.light == "dark":
        return "The picture is dark or covered; nothing can be made out."
    lit = "normally lit" if evidence.light == "normal" else evidence.light
    places: defaultdict[str, list[str]] = defaultdict(list)
    for seen in evidence.objects:
        if seen.sure:
            places[seen.kind].append(seen.place)
    sure = [f"{len(p)} {kind} ({'; '.join(p[:_PLACES])})" for kind, p in places.items()]
    unsure = sorted({seen.kind for seen in evidence.objects} - set(places))
    parts = [
        f"The picture is {lit}.",
        f"Detected: {', '.join(sure) or 'no object of the 80 known kinds'}.",
    ]
    if unsure:
        parts.append(f"Unsure: {', '.join(unsure)}.")
    if evidence.colours:
        parts.append(f"Main colours: {', '.join(evidence.colours)}.")
    if evidence.texts is not None:
        parts.append(f"Readable text: {'; '.join(map(_quoted, evidence.texts)) or 'none'}.")
    return " ".join(parts)


def sure_kinds(evidence: VisualEvidence) -> tuple[str, ...]:
    """Of what is surely there, one for each object, sorted; none of a picture in which nothing can be made out."""
    if evidence.light == "dark":
        return ()
    return tuple(sorted(seen.kind for seen in evidence.objects if seen.sure))


def unnamed(picture: EmbeddedPicture) -> VisualEvidence:
    """What can be reported of a picture that only the thinker sees."""
    return VisualEvidence((), None, (), "normal", picture.width, picture.height)


def _quoted(text: str) -> str:
    """One line, with no mark in it that would end the quotation or the brackets that a prompt puts around all of it."""
    return f'"{" ".join(text.translate(_TAME).split())}"'


NO_PICTURES: Mapping[str, EmbeddedPicture] = MappingProxyType({})

_NONE: tuple[EmbeddedPicture, ...] = ()
_NOT_KEPT = "it is no longer kept"

Known = Mapping[str, EmbeddedPicture]
"""The session's embedded pictures by their marks."""


def think_job(request: StartGeneration, bound: int | None, known: Known = NO_PICTURES) -> ThinkJob:
    """`bound`: tokens that the present load allows; the smaller of two bounds holds."""
    choice, tool = _choice(request)
    bounds = [n for n in (request.max_output_tokens, bound) if n is not None]
    return ThinkJob(
        request.instructions,
        chat(request.messages, known),
        request.tools,
        choice,
        tool,
        min(bounds, default=None),
        request.modality is Modality.AUDIO,
        request.voice,
    )


def chat(prompt: Sequence[PromptMessage], known: Known = NO_PICTURES) -> tuple[PromptMessage, ...]:
    """The prompt's messages, with what was found in their pictures, and with the pictures for a thinker that sees."""
    return tuple(_message(m, known) for m in prompt)


def _message(m: PromptMessage, known: Known) -> PromptMessage:
    if not m.pictures and m.camera is None:  # whatever looks like a mark was typed
        return m
    content, images = _marked(m.content, known)
    return replace(m, content=content, images=images)


def _marked(content: str, known: Known) -> tuple[str, tuple[EmbeddedPicture, ...]]:
    """The text, and the pictures whose marks stand in it."""
    marks = dict.fromkeys(PICTURE_MARK.findall(content))
    for mark in marks:
        if mark not in known:
            content = content.replace(mark, _NOT_KEPT)
    return content, tuple(known[mark] for mark in marks if mark in known)


def _choice(request: StartGeneration) -> tuple[str, str | None]:
    """The tool choice; auto where a session's choice cannot be met by the tools that there are."""
    choice, names = request.tool_choice, {tool.name for tool in request.tools}
    met = {"required": bool(names), "function": choice.name in names}
    if met.get(choice.mode, True):
        return choice.mode, choice.name
    return "auto", None


class Warming:
    """All sessions' prefixes that are being read."""

    def __init__(self, stages: HostStages) -> None:
        self._stages = stages
        self._jobs: dict[str, tuple[JobKey, int]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def begin(self, session: str, request: WarmPrefix, now: int) -> None:
        """A newer one of the same session takes the place of an older one. Nothing for a thinker that cannot."""
        self.end(session)
        if not self._can:
            return
        key = JobKey(session, request.work_id)
        self._jobs[session] = (key, now)
        job = ThinkJob(
            request.instructions,
            chat(request.messages, self._stages.pictures.of(session)),
            request.tools,
            request.tool_choice.mode,
            request.tool_choice.name,
            warm=True,
        )
        self._stages.runners[Stage.THINKER].submit(key, job, self)
        self._offer(key, now)

    @property
    def _can(self) -> bool:
        """Whose steps the server chooses, every thinker can; an engine that schedules itself says so."""
        able = self._stages.runners[Stage.THINKER].capabilities
        return Stage.THINKER in self._stages.stepped or (able is not None and able.warms)

    def end(self, session: str) -> None:
        """The slot is wanted, or nobody needs it any more. Idempotent."""
        job = self._jobs.pop(session, None)
        if job is not None:
            self._stages.runners[Stage.THINKER].release(job[0])

    def give_way(self, key: JobKey) -> bool:
        """A turn needs the slot: what was read so far stays in it."""
        self._stages.metrics.gave_way(Stage.THINKER.value)
        self.end(key.session)
        return True

    def on_result(self, stage: Stage, result: StepResult, now: int) -> None:
        job = self._jobs.get(result.key.session)
        if job is None or job[0] != result.key:
            return
        if result.finished:
            self.end(result.key.session)
        else:
            self._offer(result.key, job[1])

    def on_job_failed(self, stage: Stage, key: JobKey, message: str) -> None:
        """Only warmth is lost."""
        self.end(key.session)

    def _offer(self, key: JobKey, arrived_ns: int) -> None:
        runner = self._stages.runners[Stage.THINKER]
        runner.ready(
            WorkItem(
                key,
                WorkClass.DRAFT,
                arrived_ns,
                FOREVER_NS,
                FOREVER_NS,
                units=self._stages.params.prefill_tokens,
                opening=True,
                started=runner.is_started(key),
            )
        )
