"""What was seen, as a sentence for a language model, and as a report that an engine can read again.

Sure and unsure things are kept apart, and "none" is said where nothing was found: a model that is told nothing makes
something up.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from engines.base import EmbeddedPicture, VisualEvidence

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


def report(evidence: VisualEvidence) -> str:
    """All of it, as JSON."""
    return msgspec.json.encode(evidence).decode()


def reported(report: str) -> VisualEvidence:
    """What a report says."""
    return msgspec.json.decode(report, type=VisualEvidence)


def _quoted(text: str) -> str:
    """One line, with no mark in it that would end the quotation or the brackets that a prompt puts around all of it."""
    return f'"{" ".join(text.translate(_TAME).split())}"'
