"""Options and help."""

from __future__ import annotations

import subprocess
import sys

import pytest

from session_server.cli.parser import parse

pytestmark = pytest.mark.unit

COMMANDS = ["serve", "demo", "talk", "offline", "check", "models"]


@pytest.mark.parametrize("command", [[], *([c] for c in COMMANDS)])
def test_help_has_examples(command: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        parse([*command, "--help"])
    assert end.value.code == 0
    assert "examples:\n  session-server" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [[], ["fly"], ["serve", "--port", "x"], ["offline", "a.wav"], ["models"], ["models", "eat"]],
)
def test_a_wrong_option_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        parse(arguments)
    assert end.value.code == 2
    assert "usage: session-server" in capsys.readouterr().err


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from session_server.cli.parser import parse\n"
        "try: parse(['serve', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'aiohttp', 'onnxruntime', 'rich', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
