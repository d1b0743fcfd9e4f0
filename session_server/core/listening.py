"""The user's side of turn taking: from frames of voice probability to speech, turns and interruptions.

Owns the open utterance. All its lengths are samples of the input time line. Rules:

* Speech while no answer is busy is announced at once. Over an answer it is undecided until `interruption` says so;
  what turns out to be a backchannel or noise is forgotten without a word to the client, and its audio stays in the
  buffer only as uncommitted input.
* The utterance starts `prefix_padding_ms` before the onset, never before the end of the last turn, so the words that
  interrupt are input from their first sample.
* Speech over an answer that may not be stopped by it: with `interrupt_response: false` it is an ordinary turn,
  announced at once. Over a protected response, or while echo cancelling warms up, it is *held*: announced, and its turn
  ended, only when the answer is over, since clients stop playing at `speech_started`.
* A short dip resumes a turn at the off threshold; after `RESUME_STRICT_MS` of silence it takes the on threshold.
* If no audio arrives at all, a wall-clock deadline ends the turn, or dismisses an undecided interruption.
"""

from __future__ import annotations

from session_server.core.actions import AnnounceSpeechStarted, AnnounceSpeechStopped
from session_server.core.context import Context, Timer
from session_server.core.events import AudioAppended, SpeechProbability
from session_server.core.host_requests import Work, Works
from session_server.core.responses import Responses
from session_server.core.settings import TurnMode
from session_server.core.turn_taking import (
    PAUSED,
    SPEAKING,
    UNDECIDED,
    WITH_ANSWER,
    OnsetDetector,
    Overlaps,
    OverlapVerdict,
    TurnEvent,
    TurnState,
    TurnTaking,
    Utterance,
    silence_limit_ms,
)
from session_server.core.user_turns import InputBuffer, ReadingAlong, UserTurns
from session_server.types.audio import INPUT_RATE, NS_PER_MS, ms_to_samples, samples_to_ms

RESUME_STRICT_MS = 64
LONGEST_FRAME = 2_048
JUDGE_SAMPLES = 8 * INPUT_RATE
"""The turn model reads no more than this."""


class Listening:
    """Follows the user's voice, and decides when a turn begins, ends, or interrupts."""

    def __init__(
        self,
        context: Context,
        turn: TurnTaking,
        works: Works,
        responses: Responses,
        buffer: InputBuffer,
        turns: UserTurns,
    ) -> None:
        self._context = context
        self._turn = turn
        self._works = works
        self._responses = responses
        self._buffer = buffer
        self._turns = turns
        self._overlaps = Overlaps(context, turn, works, responses)
        self._along = ReadingAlong(context, works, responses)
        self._detector = OnsetDetector()
        self._frame_end = 0
        self._input_ns = context.now
        self.utterance: Utterance | None = None
        self.reserved_id: str | None = None
        """Item id that was announced and whose speech was closed by a switch to manual turns."""

    # -- audio and frames

    def appended(self, event: AudioAppended) -> None:
        """The input time line has grown; bound what is kept of it."""
        context = self._context
        self._input_ns = context.now
        open_start = None if self.utterance is None else self.utterance.start
        manual = context.settings.turn_detection.mode is TurnMode.MANUAL
        params = context.params
        keep_ms = params.max_input_ms if manual else params.idle_input_ms
        self._buffer.extend(event.end_sample, keep_ms, open_start)
        longest = ms_to_samples(params.max_speech_ms, INPUT_RATE)
        if open_start is not None and self._buffer.end - open_start >= longest:
            self.consider(self._buffer.end)

    def heard(self, event: SpeechProbability) -> None:
        """One frame of voice probability; the hot path."""
        context = self._context
        detection = context.settings.turn_detection
        end = event.end_sample
        length = min(end - self._frame_end, LONGEST_FRAME)
        self._frame_end = end
        if detection.mode is TurnMode.MANUAL or length <= 0:
            return
        probability = 0.0 if event.echo else event.probability
        on = detection.threshold
        off = on - context.params.speech_off_margin
        utterance = self.utterance
        if utterance is None:
            needed = ms_to_samples(context.params.speech_start_ms, INPUT_RATE)
            onset = self._detector.feed(probability, end, length, on, off, needed)
            if onset is not None:
                self._begin(onset, end)
            return
        silence = end - utterance.voiced_end
        strict = silence > ms_to_samples(RESUME_STRICT_MS, INPUT_RATE)
        if probability >= (on if strict else off) and not event.echo:
            utterance.voiced_end = end
            utterance.voiced += length
            if self._turn.state in PAUSED:
                self._speech_resumed(utterance)
        elif self._turn.state in SPEAKING:
            self._turn.apply(TurnEvent.SPEECH_PAUSED)
        self.consider(end)

    def consider(self, end: int) -> None:
        """Decide what the utterance calls for, with the input heard up to `end`."""
        utterance = self.utterance
        if utterance is None:
            return
        state = self._turn.state
        if state in UNDECIDED:
            self._decide_overlap(utterance, end)
        elif utterance.held and state in WITH_ANSWER:
            return
        elif state in PAUSED:
            self._consider_end(utterance, end)
        elif state is TurnState.HEARING:
            self._along.follow(utterance, end)
        if self.utterance is utterance and state not in UNDECIDED:
            longest = ms_to_samples(self._context.params.max_speech_ms, INPUT_RATE)
            if end - utterance.start >= longest:
                self._end_turn(utterance, end)

    # -- speech begins

    def _begin(self, onset: int, end: int) -> None:
        context, detection = self._context, self._context.settings.turn_detection
        padding = ms_to_samples(detection.prefix_padding_ms, INPUT_RATE)
        start = max(self._buffer.start, onset - padding)
        item_id = self.reserved_id or context.new_id("item")
        self.reserved_id = None
        utterance = Utterance(item_id, start, end, self._detector.voiced)
        self.utterance = utterance
        self._detector.reset()
        context.timers.clear(Timer.IDLE)
        self._watch_gap()
        state = self._turn.apply(TurnEvent.SPEECH_STARTED)
        if state is TurnState.HEARING:
            self._announce(utterance)
            self._along.begin()
        elif not detection.interrupt_response:
            self._refuse(utterance, held=False)
        elif self._overlaps.is_protected():
            self._refuse(utterance, held=True)
        else:
            self.consider(end)

    def _refuse(self, utterance: Utterance, held: bool) -> None:
        self._turn.apply(TurnEvent.REFUSED)
        self._context.count("interruptions", "refused")
        utterance.held = held
        if not held:
            self._announce(utterance)

    def _announce(self, utterance: Utterance) -> None:
        if not utterance.announced:
            utterance.announced = True
            start_ms = samples_to_ms(utterance.start, INPUT_RATE)
            self._context.emit(AnnounceSpeechStarted(utterance.item_id, start_ms))

    # -- speech over an answer

    def _decide_overlap(self, utterance: Utterance, end: int) -> None:
        match self._overlaps.decide(utterance, end):
            case OverlapVerdict.COMMIT:
                self._overlaps.stop_answer(utterance)
                self._turn.apply(TurnEvent.BARGED_IN)
                self._become_turn(utterance, end)
            case OverlapVerdict.DISMISS:
                self._overlaps.count_dismissal(utterance)
                self._forget(utterance)
                self._overlaps.dismiss()
            case OverlapVerdict.WAIT | OverlapVerdict.DUCK:
                pass

    def probe_answered(self, work: Work, text: str) -> None:
        """Words of speech that goes on; a failed probe counts as no words."""
        utterance = self.utterance
        if utterance is None or utterance.probe is not work:
            return
        self._overlaps.learn(utterance, text)
        if self._turn.state in UNDECIDED:
            self._decide_overlap(utterance, max(self._frame_end, utterance.voiced_end))
        elif self._turn.state is TurnState.HEARING:
            self._along.read(text)

    def _become_turn(self, utterance: Utterance, end: int) -> None:
        """Speech that was over an answer is an ordinary turn from here on."""
        self._announce(utterance)
        self._along.begin()
        if end > utterance.voiced_end:
            self._turn.apply(TurnEvent.SPEECH_PAUSED)
            self.consider(end)

    def words_came(self) -> None:
        """The words of a paused utterance may be known now: an answer can be drafted at once."""
        utterance = self.utterance
        if utterance is not None:
            self._draft(self._silence_ms(utterance, self._frame_end))

    def _draft(self, silence_ms: int) -> None:
        """Speculate once the words are known and the pause is long enough."""
        if (
            self._turn.state is TurnState.TRAILING
            and silence_ms >= self._context.params.draft_after_ms
        ):
            self._turns.begin_draft()

    def _silence_ms(self, utterance: Utterance, end: int) -> int:
        silence_ms = samples_to_ms(end - utterance.voiced_end, INPUT_RATE)
        if silence_ms:  # by then the detector had already been reporting speech for too long
            silence_ms += self._context.params.speech_release_ms
        return silence_ms

    # -- pauses and the end of a turn

    def _speech_resumed(self, utterance: Utterance) -> None:
        self._turn.apply(TurnEvent.SPEECH_RESUMED)
        self._forget_judgement(utterance)
        self._turns.forget_ahead()

    def _forget_judgement(self, utterance: Utterance) -> None:
        work, utterance.judgement = utterance.judgement, None
        if work is not None:
            self._works.cancel(work.id)
        utterance.judge_asked = utterance.judge_failed = False
        utterance.judged = None

    def _consider_end(self, utterance: Utterance, end: int) -> None:
        params, detection = self._context.params, self._context.settings.turn_detection
        silence_ms = self._silence_ms(utterance, end)
        limit = silence_limit_ms(detection, params, utterance.judged, utterance.judge_failed)
        if silence_ms >= limit:
            self._end_turn(utterance, end)
            return
        free = self._turn.state is TurnState.TRAILING and self._turns.ahead is None
        early = params.speculate and detection.create_response and free
        if early and silence_ms >= params.recognise_after_ms:
            self._turns.look_ahead(utterance.item_id, utterance.start, end)
        self._draft(silence_ms)
        semantic = detection.mode is TurnMode.SEMANTIC_VAD
        if semantic and not utterance.judge_asked and silence_ms >= params.turn_model_after_ms:
            utterance.judge_asked = True
            start = max(utterance.start, end - JUDGE_SAMPLES)
            utterance.judgement = self._works.judge(utterance.item_id, start, end)

    def judged(self, work: Work, probability: float | None) -> None:
        """The turn model has answered, or (None) will not."""
        utterance = self.utterance
        if utterance is None or utterance.judgement is not work:
            return
        utterance.judgement = None
        utterance.judged = probability
        utterance.judge_failed = probability is None
        self.consider(self._frame_end)

    def _end_turn(self, utterance: Utterance, end: int) -> None:
        """The user has finished: close the speech, commit it, respond."""
        end = min(max(end, utterance.voiced_end), self._buffer.end)
        respond = self._context.settings.turn_detection.create_response
        self.close_speech(utterance, end)
        until = utterance.voiced_end
        self._turns.commit(utterance.item_id, utterance.start, end, respond, until)
        if respond and self._turn.state is TurnState.LISTENING and not self._responses.busy:
            # it had no words, and its response is over already: what follows an answer follows it
            self._turn.apply(TurnEvent.ANSWER_STARTED)

    def close_speech(self, utterance: Utterance, end: int) -> None:
        """`speech_stopped`, and no open utterance any more; what was begun ahead of the commit stays."""
        self._announce(utterance)
        self._forget_judgement(utterance)
        self._overlaps.cancel_probe(utterance)
        self.utterance = None
        self._detector.reset()
        self._context.timers.clear(Timer.INPUT_GAP)
        end_ms = samples_to_ms(end, INPUT_RATE)
        self._context.emit(AnnounceSpeechStopped(utterance.item_id, end_ms))
        self._turn.apply(TurnEvent.TURN_ENDED)

    # -- from outside

    def answer_over(self) -> None:
        """The answer has ended under speech that did not stop it: it is an ordinary turn now."""
        self._responses.sending.paused = False
        utterance = self.utterance
        if utterance is None:
            return
        self._overlaps.cancel_probe(utterance)
        utterance.held = False
        if self._turn.state is TurnState.HEARING:
            self._become_turn(utterance, self._frame_end)
        else:
            self._announce(utterance)
            self.consider(self._frame_end)

    def drop_speech(self) -> None:
        """The client cleared its input, or took it for itself: the open speech is no more."""
        utterance = self.utterance
        self._detector.reset()
        if utterance is None:
            return
        self._forget(utterance)
        if self._turn.state in UNDECIDED:
            self._overlaps.dismiss()
        else:
            self._turn.apply(TurnEvent.SPEECH_DROPPED)

    def _forget(self, utterance: Utterance) -> None:
        self._overlaps.cancel_probe(utterance)
        self._forget_judgement(utterance)
        self._turns.forget_ahead()
        self.utterance = None
        self._detector.reset()
        self._context.timers.clear(Timer.INPUT_GAP)

    def mode_changed(self) -> None:
        """Turn detection was switched off: close the open speech, keep its audio for the client's commit."""
        utterance = self.utterance
        if utterance is None or self._context.settings.turn_detection.mode is not TurnMode.MANUAL:
            return
        if not utterance.announced:
            self.drop_speech()
            return
        self._turns.forget_ahead()
        self.close_speech(utterance, self._buffer.end)
        self.reserved_id = utterance.item_id

    # -- no audio

    def _watch_gap(self) -> None:
        self._context.timers.set(Timer.INPUT_GAP, self._gap_ends())

    def _gap_ends(self) -> int:
        """When a stalled input is taken for silence: the gap, and then the rule's own silence."""
        params, detection = self._context.params, self._context.settings.turn_detection
        silence_ms = silence_limit_ms(detection, params, None, judge_failed=False)
        return self._input_ns + (params.input_gap_ms + silence_ms) * NS_PER_MS

    def input_stalled(self) -> None:
        """The deadline of an open utterance: end it, unless audio came meanwhile."""
        utterance = self.utterance
        if utterance is None:
            return
        if self._gap_ends() > self._context.now:
            self._watch_gap()
        elif self._turn.state in UNDECIDED:
            self._overlaps.count_dismissal(utterance)
            self._forget(utterance)
            self._overlaps.dismiss()
        elif utterance.held and self._turn.state in WITH_ANSWER:
            self._input_ns = self._context.now  # its turn ends when the answer does
            self._watch_gap()
        else:
            self._end_turn(utterance, self._buffer.end)
