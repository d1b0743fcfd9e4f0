"""Pictures as clients send them, whole and hostile."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image


def encoded(image: Image.Image, form: str = "JPEG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def half_red(width: int = 100, height: int = 60) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", (width, height), "blue")
    image.paste("red", (0, 0, width // 2, height))
    return image


def huge_png(width: int, height: int) -> bytes:
    """A header that promises a picture, and nearly nothing behind it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def jpeg_of_scans(width: int, height: int, scans: int) -> bytes:
    """A grey progressive JPEG: one scan with something in it, and `scans` - 1 of some twenty bytes that add nothing."""

    def segment(marker: int, data: bytes) -> bytes:
        return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data

    one_code = bytes([1] + [0] * 15)
    blocks = -(-width // 8) * -(-height // 8)
    # "no more in the next 32767 blocks" in 15 bits: the code, and fourteen times 1
    bits = ("0" + "1" * 14) * -(-blocks // 32767)
    bits += "1" * (-len(bits) % 8)
    nothing = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    return (
        b"\xff\xd8"
        + segment(0xDB, b"\0" + bytes([16] * 64))
        + segment(0xC2, struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\0")
        + segment(0xC4, b"\0" + one_code + b"\0")
        + segment(0xC4, b"\x10" + one_code + b"\xe0")
        + segment(0xDA, b"\x01\x01\0\0\0\0")
        + bytes(-(-blocks // 8))
        + (segment(0xDA, b"\x01\x01\0\x01\x3f\0") + nothing) * (scans - 1)
        + b"\xff\xd9"
    )
