"""`serve` and `demo`."""

from __future__ import annotations

import argparse

from rich.markup import escape

from session_server.cli.console import console, table, tell
from session_server.cli.models import fetch_if_needed
from session_server.cli.settings import patient, settings
from session_server.client.check import START_ERRORS, explained, require_port
from session_server.client.demo import TURN_DETECTION, Shown, clips_to_say, demonstrate
from session_server.client.models import require_models
from session_server.client.offline import require_writable
from session_server.http.server import Server, serve as serve_until_told
from session_server.http.tls import names_of_this_machine
from session_server.process.lifecycle import leave_without_stuck_threads, run
from session_server.recording.record_file import require_record
from session_server.workers.supervisor import Supervisor, serve as serve_with_workers


def serve(options: argparse.Namespace) -> int:
    config = settings(options).config
    require_record(config.observability)
    require_models(config)
    try:
        if config.server.workers > 1:
            run(serve_with_workers(config, _announce))
        else:
            run(serve_until_told(config, _announce))
    except START_ERRORS as error:
        raise explained(error, config) from error
    leave_without_stuck_threads()
    return 0


async def _announce(server: Server | Supervisor) -> bool:
    assert server.address is not None
    console.print(f"[green]ready[/green]  {escape(server.address.ws)}")
    if server.config.server.workers > 1:
        console.print(f"[dim]{server.config.server.workers} workers share the port[/dim]")
    if server.config.server.web_client:
        for url in server.address.pages(names_of_this_machine(server.address.host)):
            console.print(f"[green]page[/green]   {escape(url)}")
    if server.tls is not None:
        made = "new" if server.tls.new else "kept"
        kind = f"self-signed, {made}" if server.tls.self_signed else "yours"
        console.print(f"[dim]certificate ({kind}): {escape(str(server.tls.certificate))}[/dim]")
        console.print(f"[dim]its SHA-256 fingerprint: {server.tls.fingerprint}[/dim]")
    console.print("[dim]Ctrl-C stops: running answers may end; a second one ends at once[/dim]")
    return True


def demo(options: argparse.Namespace) -> int:
    config = patient(options, settings(options, quiet=True).config)
    require_port(config)
    require_writable(options.output)
    fetch_if_needed(config)
    clips = clips_to_say()

    async def show(server: Server) -> bool:
        _print_shown(await demonstrate(server, clips, options.output, tell))
        if options.once:
            return False
        assert server.address is not None
        where = f"session-server talk --url {server.address.ws}"
        tell(
            "note", f"the server keeps running; talk to it with `{where}` (needs the extra `sound`)"
        )
        return await _announce(server)

    tell("note", "loading the engines")
    run(serve_until_told(config, show))
    leave_without_stuck_threads()
    return 0


def _print_shown(shown: Shown) -> None:
    exchange, cut = shown.exchange, shown.interrupted
    rows = [[leg.name, f"{leg.ms:.0f}"] for leg in exchange.legs]
    rows.append(["= last voiced sample to first audio", f"{exchange.first_audio_ms:.0f}"])
    rows += [
        [f"  in the server: {leg.name.replace('_', ' ')}", f"{leg.ms:.0f}"] for leg in shown.legs
    ]
    console.print()
    table("where the time went", ["leg", "ms"], rows)
    console.print()
    rows = [
        ["generated", cut.said],
        ["kept", cut.kept],
        ["status", cut.status],
        ["heard", f"{cut.heard_ms} ms"],
        [f"onset of speech to fence, under {TURN_DETECTION}", f"{cut.stop_ms:.0f} ms"],
    ]
    table("the interrupted answer", ["", ""], rows)
    console.print()
    tell("note", f"the first answer, to listen to: {shown.wav.resolve()}")
