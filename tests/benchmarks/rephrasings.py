"""What SmolLM2 makes of the answers about pictures, and how much of it may be spoken.

    python -m tests.benchmarks.rephrasings --photos ../shared/data/photos

The answers are those to four questions about each photograph and each of six drawn signs. Printed are both texts, whether the model's may
be spoken and whether it is more than the template's own words, and processor milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from engines.base import JobKey, StepRequest, TokenOutput, VisualEvidence
from engines.cpu import thinker
from engines.cpu.thinker import ThinkerEngine
from engines.model_store.store import ModelStore
from engines.vision.detector import create
from engines.vision.evidence_text import answer
from engines.vision.grounded_thinker import is_faithful, rephrasing
from session_server.client.look import looks
from tests.unit.engines.vision.test_detector import SIGNS, looked_at, sign

QUESTIONS = (
    "what do you see?",
    "is there a cat?",
    "what does it say?",
    "how many people are there?",
)
DRAWN = 6


def templates(photographs: Path) -> list[str]:
    detector = create({}, ModelStore())
    detector.load()
    seen: list[VisualEvidence | None] = [
        one.evidence for one in looks(ModelStore(), sorted(photographs.iterdir()))
    ]
    seen += [looked_at(detector, sign(text, seed)) for seed, text in enumerate(SIGNS[:DRAWN])]
    return list(dict.fromkeys(answer(q, one) for one in seen if one for q in QUESTIONS))


def said(engine: ThinkerEngine, template: str) -> str:
    key, parts, finished = JobKey("rephrasings", template), [], False
    engine.start(key, rephrasing(template))
    while not finished:
        (result,) = engine.step([StepRequest(key, 64)])
        if isinstance(result.output, TokenOutput):
            parts.append(result.output.text or "")
        finished = result.finished
    engine.release(key)
    return "".join(parts).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, required=True)
    found = templates(parser.parse_args().photos)
    engine = thinker.create({"slots": 2}, ModelStore())
    engine.load()
    passed, new, spent = 0, 0, []
    for template in found:
        begun = time.process_time()
        text = said(engine, template)
        spent.append(1e3 * (time.process_time() - begun))
        faithful = is_faithful(text, template)
        passed += faithful
        new += faithful and text.replace('"', "") != template
        print(f"{'yes' if faithful else 'no '} {spent[-1]:4.0f} ms | {template} -> {text}")
    print(f"{passed} of {len(found)} may be spoken, {new} of them in other words")
    print(f"{min(spent):.0f} to {max(spent):.0f} CPU ms, median {statistics.median(spent):.0f}")


if __name__ == "__main__":
    main()
