"""Synthetic sounds for tests: reproducible, no files, no models."""

import numpy as np


def speechlike(seconds: float, rate: int, seed: int, rms: float = 2500.0) -> np.ndarray:
    """int16 that moves like speech: syllables at 3-6 Hz, voiced (glides of pitch and formants) or hissed."""
    rng = np.random.default_rng(seed)
    samples = int(seconds * rate)
    out = np.zeros(samples)
    at = 0
    pitch = rng.uniform(90, 220)
    while at < samples:
        length = int(rng.uniform(0.12, 0.28) * rate)
        voiced = rng.random() < 0.8
        syllable = _voiced(rng, length, rate, pitch) if voiced else _hiss(rng, length, rate)
        end = min(samples, at + length)
        out[at:end] += syllable[: end - at]
        pause = rng.uniform(0.15, 0.4) if rng.random() < 0.15 else rng.uniform(0.0, 0.04)
        at += length + int(pause * rate)
    return np.clip(out * rms / out.std(), -32768, 32767).astype(np.int16)


def _voiced(rng: np.random.Generator, length: int, rate: int, pitch: float) -> np.ndarray:
    t = np.arange(length) / rate
    f0 = pitch * (1 + rng.uniform(-0.15, 0.15) + rng.uniform(-0.2, 0.2) * t / t[-1])
    phase = 2 * np.pi * np.cumsum(f0) / rate
    formants = np.array([rng.uniform(280, 800), rng.uniform(900, 2300), rng.uniform(2400, 3300)])
    out = np.zeros(length)
    for harmonic in range(1, int(min(rate / 2, 5000) / pitch / 1.3)):
        frequency = harmonic * pitch
        gain = (1 / (1 + ((frequency - formants) / np.array([90, 130, 200])) ** 2)).sum() + 0.02
        out += gain * np.sin(harmonic * phase + rng.uniform(0, 2 * np.pi))
    return out * np.hanning(length) ** 0.5 * rng.uniform(0.5, 1.0)


def _hiss(rng: np.random.Generator, length: int, rate: int) -> np.ndarray:
    noise = np.diff(rng.standard_normal(length + 1))
    return noise * np.hanning(length) * 0.4


def room(rate: int, seed: int, rt60_s: float = 0.3, direct_samples: int = 0) -> np.ndarray:
    """An impulse response: a direct path, then exponentially decaying noise; unit energy."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(rt60_s * rate)) / rate
    tail = rng.standard_normal(len(t)) * 10 ** (-3 * t / rt60_s) * 0.12
    tail[: int(0.003 * rate)] = 0
    tail[0] = 1.0
    response = np.concatenate((np.zeros(direct_samples), tail))
    return response / np.sqrt((response**2).sum())


def filtered(signal: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Full convolution by FFT: cheap whatever the lengths."""
    length = len(signal) + len(response) - 1
    size = 1 << (length - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(signal, size) * np.fft.rfft(response, size), size)[:length]
