"""Recorded speech over a bad network, as the recogniser hears it: 5 % lost, 30 ms of jitter.

Recordings are read from a folder beside the checkout (`SESSION_SERVER_SPEECH`, else `../shared/data/speech`).
"""

from __future__ import annotations

import pytest

from engines.cpu.asr import AsrEngine
from tests.unit.engines.cpu.conftest import fetched_store as fetched_store
from tests.unit.engines.cpu.test_thinker_real_model import (
    TRANSCRIPTS,
    asr as asr,
    errors,
    read,
    recognise,
    words,
)
from tests.unit.transports.webrtc.lossy_line import FRAME_BYTES, Network, encoded, over

pytestmark = [pytest.mark.integration, pytest.mark.models, pytest.mark.timeout(120)]

SPOKEN = ("jfk", "librivox_0870", "ls_2412-153948-0000", "sb_spk1_snt5")


def test_speech_is_still_understood(asr: AsrEngine):
    wrong, said = {"whole": 0, "lossy": 0}, 0
    for seed, name in enumerate(SPOKEN):
        packets = encoded(read(name))
        wanted = words(TRANSCRIPTS[name])
        said += len(wanted)
        for kind, network in (
            ("whole", Network(loss=0, jitter_s=0, twice=0)),
            ("lossy", Network(seed=seed)),
        ):
            ear = over(network, packets)
            assert len(ear.pcm) == FRAME_BYTES * len(packets)
            assert ear.longest_stop() < 0.1
            (text,) = recognise(asr, ear.pcm)
            wrong[kind] += errors(wanted, words(text))
    assert wrong["lossy"] <= wrong["whole"] + 0.03 * said, wrong
