"""Whether questions about the camera are known for that once they were spoken and recognised, by the default voice and recogniser.

    python -m tests.benchmarks.camera_questions_heard

Asked are the questions of `test_camera_questions`, and every third of those about something else. Printed are those that are taken
for the wrong one, as they were recognised, and how many.
"""

from __future__ import annotations

import numpy as np
import soxr

from engines.base import JobKey, SteppedEngine, StepRequest, Transcript, UtteranceJob
from engines.cpu import asr
from engines.model_store.store import ModelStore
from engines.vision.camera_questions import about, spelled_out
from session_server.client.sound import Synthesiser
from session_server.types.audio import INPUT_RATE
from tests.unit.engines.vision.test_camera_questions import NOW, OTHER

VOICE_RATE = 24_000
HUSH = np.zeros(INPUT_RATE // 3, np.float32)


def recognised(engine: SteppedEngine, voice: Synthesiser, question: str) -> str:
    spoken = np.frombuffer(voice.say(question), "<i2").astype(np.float32)
    sound = np.concatenate([HUSH, soxr.resample(spoken, VOICE_RATE, INPUT_RATE), HUSH])
    key = JobKey("heard", question)
    engine.start(key, UtteranceJob(sound.clip(-32768, 32767).astype("<i2").tobytes()))
    (result,) = engine.step([StepRequest(key, 1)])
    engine.release(key)
    assert isinstance(result.output, Transcript)
    return result.output.text


def main() -> None:
    engine, voice = asr.create({}, ModelStore()), Synthesiser()
    engine.load()
    for name, questions, meant in (("camera", NOW, True), ("else", OTHER[::3], False)):
        wrong = 0
        for question in questions:
            text = recognised(engine, voice, question)
            if (about(spelled_out(text)) is not None) != meant:
                wrong += 1
                print(f"{name}: {question} -> {text}")
        print(f"{name}: {wrong} of {len(questions)} taken for the other")


if __name__ == "__main__":
    main()
