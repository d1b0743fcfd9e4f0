"""The commands that act as a client: `talk`, `offline`, `check` and `look`.

`look` prints the objects and the text of picture files.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from session_server.cli.console import console, print_json, table, tell
from session_server.cli.settings import patient, settings
from session_server.client import offline as offline_turn, talk as talking
from session_server.client.check import check as look_at_everything
from session_server.client.look import PictureReport, looks
from session_server.client.models import model_store, require_models
from session_server.client.offline import require_writable
from session_server.client.sound import write_wav
from session_server.host.prompt import described
from session_server.http.tls import client_tls
from session_server.process.lifecycle import run


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


def check(options: argparse.Namespace) -> int:
    loaded = settings(options, quiet=True)
    if not options.json:
        rows = [[s.key, s.source, _shown(s.value)] for s in loaded.settings()]
        table("settings", ["key", "source", "value"], rows)
        console.print()
    report = run(look_at_everything(patient(options, loaded.config)))
    if options.json:
        config = {s.key: {"value": s.value, "source": s.source} for s in loaded.settings()}
        print_json({**report.as_json(), "config": config})
        return 0 if report.ok else 1
    for finding in report.findings:
        mark = "[green]ok[/green]  " if finding.ok else "[red]FAIL[/red]"
        console.print(f"{mark} {finding.name}: ", end="")
        console.print(finding.detail, markup=False)
        if finding.cure:
            console.print(f"     cure: {finding.cure}", markup=False)
    console.print(f"{'all well' if report.ok else 'not well'}, {report.seconds:.1f} s")
    return 0 if report.ok else 1


def _shown(value: object) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value)))
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "[]"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def look(options: argparse.Namespace) -> int:
    store = model_store(settings(options, quiet=True).config)
    found = []
    for one in looks(store, options.pictures, read=not options.no_text):
        found.append(one)
        if not options.json:
            console.print(f"{one.path}: {_line(one)}", markup=False, highlight=False)
    failed = any(one.error is not None for one in found)
    if options.json:
        print_json({"ok": not failed, "pictures": [_entry(one) for one in found]})
    return 1 if failed else 0


def _line(one: PictureReport) -> str:
    if one.evidence is None:
        return f"cannot be looked at: {one.error}"
    return described(one.evidence)


def _entry(one: PictureReport) -> dict[str, object]:
    entry: dict[str, object] = {
        "file": str(one.path),
        "cpu_ms": round(one.cpu_ms, 1),
        "step_ms": [round(ms, 1) for ms in one.step_ms],
    }
    if one.evidence is None:
        return entry | {"error": one.error}
    return entry | asdict(one.evidence) | {"text": described(one.evidence)}
