"""`talk` and `offline`."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from session_server.cli.console import console, print_json, tell
from session_server.cli.settings import patient, settings
from session_server.runtime import offline as offline_turn, talk as talking
from session_server.runtime.loop import run
from session_server.runtime.models import require_models
from session_server.runtime.offline import require_writable
from session_server.runtime.sound_files import write_wav
from session_server.runtime.tls import client_tls


def talk(options: argparse.Namespace) -> int:
    if options.wav and options.output is not None:
        require_writable(options.output)
    key = options.key or os.environ.get("OPENAI_API_KEY")
    tls = None if options.tls_cert is None else client_tls(options.tls_cert)
    if not options.wav:
        run(talking.talk(options.url, key, options.turn_detection, tell, tls))
        return 0
    answers = run(
        talking.talk_recorded(options.url, key, options.turn_detection, options.wav, tell, tls)
    )
    if options.output is not None:
        write_wav(options.output, answers)
        tell("note", f"the answers are in {options.output}")
    return 0


def offline(options: argparse.Namespace) -> int:
    config = patient(options, settings(options, quiet=True).config)
    require_writable(options.output)
    require_models(config)
    result = run(offline_turn.offline(config, options.input, options.output, options.instructions))
    if options.json:
        print_json(asdict(result))
        return 0
    tell("user", result.transcript)
    tell("server", result.reply_text)
    console.print(
        f"{result.reply_seconds:.1f} s of speech in {options.output}, "
        f"first audio after {result.first_audio_ms:.0f} ms",
        markup=False,
    )
    return 0
