"""The page's pure modules under Node: every `*.test.mjs` of this folder, in one process.

They hold what the page decides: what sounds and what is reported of it, whose words were heard, where the time went.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "web_client"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def run_node(*arguments: str, stdin: str) -> subprocess.CompletedProcess[str]:
    assert NODE is not None
    return subprocess.run(
        [NODE, *arguments], cwd=HERE, input=stdin, capture_output=True, text=True, timeout=50
    )


@needs_node
def test_the_models_of_the_page_hold():
    files = sorted(file.name for file in HERE.glob("*.test.mjs"))
    assert len(files) >= 5
    done = run_node("--input-type=module", "-", stdin="".join(f"import './{f}';\n" for f in files))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    counts = dict(re.findall(r"^# ([a-z]+) (\d+)$", done.stdout, re.MULTILINE))
    assert int(counts["pass"]) >= 72
    assert counts["fail"] == counts["skipped"] == counts["todo"] == "0"


PARSE = """
import { readFileSync } from 'node:fs';
import { SourceTextModule } from 'node:vm';
for (const file of %s) new SourceTextModule(readFileSync(file, 'utf8'), { identifier: file });
"""


@needs_node
def test_no_module_has_a_syntax_error():
    files = json.dumps([str(file) for file in sorted(PAGE.rglob("*.js"))])
    assert files.count("_worklet.js") == 3
    flags = ("--experimental-vm-modules", "--no-warnings", "--input-type=module", "-")
    done = run_node(*flags, stdin=PARSE % files)
    assert done.returncode == 0, done.stderr


def test_the_models_know_neither_document_nor_sound():
    for file in (PAGE / "model").glob("*.js"):
        text = file.read_text()
        for name in ("document.", "window.", "navigator.", "AudioContext", "performance.now"):
            assert name not in text, f"{file.name} uses {name}"


def test_no_file_of_the_page_grows_beyond_400_lines():
    lengths = {f.name: len(f.read_text().splitlines()) for f in PAGE.rglob("*") if f.is_file()}
    assert {name: n for name, n in lengths.items() if n > 400} == {}
