"""Recognition and thinking with the fetched models: exactness, sense, speed of nothing.

Speech recordings are read from a folder beside the checkout (`SESSION_SERVER_SPEECH`, else `../shared/data/speech`).
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from engines.base import JobKey, StepRequest, ThinkJob, Transcript, UtteranceJob
from engines.cpu.asr import AsrEngine
from engines.cpu.moonshine import samples_of
from engines.cpu.thinker import ThinkerEngine
from engines.model_store.store import ModelStore
from session_server.types.audio import INPUT_RATE
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool
from tests.unit.engines.cpu.thinking import job, run

pytestmark = [pytest.mark.integration, pytest.mark.models, pytest.mark.timeout(120)]

TRANSCRIPTS = {
    "arctic_aew_a0002": "not at this particular case tom apologized whittemore",
    "arctic_aew_a0003": "for the twentieth time that evening the two men shook hands",
    "arctic_axb_a0005": "will we ever forget it",
    "cards_001": "ten of clubs",
    "cards_003": "seven of clubs",
    "jfk": "and so my fellow americans ask not what your country can do for you "
    "ask what you can do for your country",
    "librivox_0870": "and mister john dashwood had then leisure to consider how much there might be prudently in "
    "his power to do for them",
    "livekit_hello_world": "hello world",
    "ls_2412-153948-0000": "if the reader will excuse me i will say nothing of my antecedents nor of the "
    "circumstances which led me to leave my native country the narrative would be tedious to him and painful to "
    "myself",
    "sb_spk1_snt1": "the child almost hurt the small dog",
    "sb_spk1_snt3": "at that high level the air is pure",
    "sb_spk1_snt4": "a thin stripe runs down the middle",
    "sb_spk1_snt5": "sunday is the best part of the week",
}
INSTRUCTIONS = (
    "Answer in one short sentence. Only when you are asked to count, count aloud to the very end."
)
SENSE = {
    "What is the capital city of France?": "paris",
    "How many days are there in a week?": r"7|seven",
    "What color is the sky on a clear day?": "blue",
    "What is the opposite of hot?": "cold",
    "What is the largest planet in the solar system?": "jupiter",
    "What does a doctor do?": "people|medic|health|diseas",
}
WEATHER = Tool(
    "get_weather",
    "Weather of a city",
    json.dumps(
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city"],
        }
    ),
)


def speech_folder() -> Path:
    beside = Path(__file__).parents[4].parent / "shared" / "data" / "speech"
    return Path(os.environ.get("SESSION_SERVER_SPEECH") or beside)


@pytest.fixture(scope="module")
def asr(fetched_store: ModelStore) -> Iterator[AsrEngine]:
    engine = AsrEngine(fetched_store)
    engine.load()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def thinker(fetched_store: ModelStore) -> Iterator[ThinkerEngine]:
    engine = ThinkerEngine(fetched_store, slots=4)
    engine.load()
    yield engine
    engine.close()


def recognise(engine: AsrEngine, *utterances: bytes) -> list[str]:
    keys = [JobKey("s", f"w{i}") for i in range(len(utterances))]
    for key, pcm in zip(keys, utterances, strict=True):
        engine.start(key, UtteranceJob(pcm))
    outputs = [r.output for r in engine.step([StepRequest(k, 1) for k in keys])]
    return [o.text for o in outputs if isinstance(o, Transcript)]


def read(name: str) -> bytes:
    path = speech_folder() / f"{name}.flac"
    if not path.exists():
        pytest.skip(f"no recordings in {path.parent}")
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == INPUT_RATE
    return bytes(samples.tobytes())


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower().replace("mr.", "mister"))


def errors(wanted: list[str], got: list[str]) -> int:
    """Edit distance in words."""
    row = list(range(len(got) + 1))
    for i, w in enumerate(wanted, 1):
        previous, row[0] = row[0], i
        for j, g in enumerate(got, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (w != g))
    return row[-1]


def test_recorded_speech_is_understood(
    asr: AsrEngine,
    record_property: Callable[[str, object], None],
) -> None:
    wrong = total = 0
    for name, transcript in TRANSCRIPTS.items():
        (text,) = recognise(asr, read(name))
        assert text, name
        wrong += errors(words(transcript), words(text))
        total += len(words(transcript))
    record_property("word_error_rate", round(wrong / total, 4))
    assert wrong / total < 0.06


def test_a_batch_says_what_each_says_alone(asr: AsrEngine) -> None:
    clips = [read(n) for n in ("sb_spk1_snt1", "sb_spk1_snt3", "sb_spk1_snt4", "sb_spk1_snt5")]
    assert recognise(asr, *clips) == [recognise(asr, clip)[0] for clip in clips]


def test_a_guess_does_not_change_what_is_recognised(asr: AsrEngine) -> None:
    model = asr._recogniser
    assert model is not None
    audio = samples_of(read("jfk"))
    wanted = model.recognise([audio])[0]
    for seconds in (2, 5, 8):
        guess = model.recognise([audio[: seconds * INPUT_RATE]])[0].ids
        assert guess
        assert model.recognise([audio], guess)[0] == wanted
    for guess in (wanted.ids, (5, 6, 7), (2, 2), (*wanted.ids, 9, 9), (1,)):
        assert model.recognise([audio], guess)[0] == wanted


@pytest.mark.parametrize("level", [0.0, 0.0001, 0.001, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("seconds", [0.0, 0.01, 1.0, 3.0, 40.0])
def test_noise_says_nothing(asr: AsrEngine, level: float, seconds: float) -> None:
    rng = np.random.default_rng(0)
    noise = np.clip(level * rng.standard_normal(int(seconds * INPUT_RATE)), -1, 1)
    assert recognise(asr, (noise * 32767).astype("<i2").tobytes()) == [""]


def test_long_speech_is_recognised_whole(asr: AsrEngine) -> None:
    names = ("sb_spk1_snt1", "jfk", "sb_spk1_snt3", "ls_2412-153948-0000", "librivox_0870")
    silence = bytes(INPUT_RATE)
    (text,) = recognise(asr, silence.join(read(n) for n in names))
    wanted = [w for n in names for w in words(TRANSCRIPTS[n])]
    assert errors(wanted, words(text)) <= 0.08 * len(wanted)


def test_plain_questions_get_sensible_answers(thinker: ThinkerEngine) -> None:
    for i, (question, pattern) in enumerate(SENSE.items()):
        said = run(thinker, JobKey(f"q{i}", "w"), job(question, INSTRUCTIONS))
        assert re.search(pattern, said.text.lower()), (question, said.text)
        assert said.last.reason == "stop"
        assert said.last.output_tokens <= 60


@pytest.mark.parametrize(
    "instructions", [INSTRUCTIONS, "", "You are a helpful voice assistant. Answer briefly."]
)
def test_a_long_story_is_long(thinker: ThinkerEngine, instructions: str) -> None:
    said = run(
        thinker, JobKey("story", "w"), job("Tell me a long story about a cat.", instructions)
    )
    assert len(said.text.split()) >= 60
    assert said.last.reason == "stop"
    assert said.text.rstrip()[-1] in ".!?\"'"


def test_chunks_do_not_change_the_answer(thinker: ThinkerEngine) -> None:
    work = job("What is the opposite of hot?", "Unlike any other: reply plainly.")
    texts = set()
    for i, units in enumerate((7, 64, 256)):
        thinker._loaded.prefixes._states.clear()  # type: ignore[union-attr]
        said = run(thinker, JobKey(f"chunk{i}", "w"), work, units)
        assert said.last.cached_tokens == 0
        texts.add(said.text)
    assert len(texts) == 1


def test_a_batch_answers_as_each_alone(thinker: ThinkerEngine) -> None:
    works = {JobKey(f"b{i}", "w"): job(q, INSTRUCTIONS) for i, q in enumerate(list(SENSE)[:3])}
    alone = {k: run(thinker, JobKey(f"{k.session}-alone", "w"), w).text for k, w in works.items()}
    for k, w in works.items():
        thinker.start(k, w)
    texts = dict.fromkeys(works, "")
    waiting = list(works)
    while waiting:
        results = thinker.step([StepRequest(k, 32) for k in waiting])
        for r in results:
            texts[r.key] += getattr(r.output, "text", None) or ""
        waiting = [r.key for r in results if not r.finished]
    for k in works:
        thinker.release(k)
    assert texts == alone


def test_state_moved_out_and_in_gives_the_same_answer(thinker: ThinkerEngine) -> None:
    history = (
        PromptMessage("user", "My favourite colour is green."),
        PromptMessage("assistant", "Green is a lovely colour."),
        PromptMessage("user", "What is the capital of Spain?"),
    )
    run(thinker, JobKey("stay", "1"), ThinkJob(INSTRUCTIONS, history[:1]))
    state = thinker.export_state("stay")
    assert state is not None
    stayed = run(thinker, JobKey("stay", "2"), ThinkJob(INSTRUCTIONS, history))
    thinker.forget("stay")
    thinker.import_state("moved", state)
    assert thinker.export_state("moved") == state
    moved = run(thinker, JobKey("moved", "2"), ThinkJob(INSTRUCTIONS, history))
    assert moved.text == stayed.text
    assert moved.last.cached_tokens == stayed.last.cached_tokens > 0


def test_a_forced_call_names_the_city(thinker: ThinkerEngine) -> None:
    work = job(
        "What is the weather in Paris? Use the tool.",
        INSTRUCTIONS,
        tools=(WEATHER,),
        tool_choice="function",
        tool_name="get_weather",
    )
    said = run(thinker, JobKey("call", "w"), work)
    call = json.loads(said.text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert call["name"] == "get_weather"
    assert call["arguments"]["city"] == "Paris"
    assert said.steps <= 16
    after = (
        PromptMessage("user", "What is the weather in Paris? Use the tool."),
        PromptMessage("assistant", json.dumps(call["arguments"]), "call", "get_weather"),
        PromptMessage("tool", "sunny", "result", "get_weather"),
    )
    answer = run(thinker, JobKey("call", "x"), ThinkJob(INSTRUCTIONS, after, (WEATHER,), "none"))
    assert "sunny" in answer.text.lower()
