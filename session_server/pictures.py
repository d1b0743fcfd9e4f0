"""Encoded pictures from clients: what may be decoded, and the grid on which camera frames are compared."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

GRID_WIDTH, GRID_HEIGHT = 64, 48
LumaGrid = npt.NDArray[np.int16]
"""Luma 0 to 255, area means, [GRID_HEIGHT, GRID_WIDTH]."""


class BadPicture(ValueError):
    """It cannot be looked at; the text says why and follows the name of the field."""
