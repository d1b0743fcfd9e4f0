"""Evidence as a detector would give it, in a line."""

from engines.base import SeenObject, VisualEvidence

BOX = (0.0, 0.0, 1.0, 1.0)


def seen(
    *objects: tuple[str, str, bool],
    texts: tuple[str, ...] | None = (),
    colours: tuple[str, ...] = (),
    light: str = "normal",
) -> VisualEvidence:
    found = tuple(SeenObject(kind, place, sure, BOX) for kind, place, sure in objects)
    return VisualEvidence(found, texts, colours, light, 640, 480)


ROOM = seen(
    ("cat", "left", True), ("cat", "centre, close", True), ("tie", "right, small", False),
    texts=("EXIT",), colours=("red", "grey"),
)  # fmt: skip
