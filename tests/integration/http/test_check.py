"""`check`: each thing that can be missing is named with its cure, and the rest is still looked at."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from engines.base import Stage
from session_server.client.check import CheckReport, check
from session_server.config import Config, load

pytestmark = pytest.mark.integration


def simulated(port: int = 0) -> Config:
    config = load(Path("sim.yaml")).config
    return replace(config, server=replace(config.server, port=port))


def finding(report: CheckReport, name: str) -> tuple[bool, str, str]:
    (found,) = [f for f in report.findings if f.name == name]
    return found.ok, found.detail, found.cure


@pytest.mark.asyncio
async def test_all_well_with_a_spoken_round_trip():
    report = await check(simulated())
    assert report.ok, report.findings
    body = json.loads(json.dumps(report.as_json()))
    assert body["ok"] is True
    assert [f["name"] for f in body["findings"]] == ["models", "port", "round trip"]
    trip = body["round_trip"]
    assert set(trip) == {"transcript", "reply_text", "first_audio_ms", "reply_seconds"}
    assert trip["reply_seconds"] > 0


@pytest.mark.asyncio
async def test_missing_models_are_named_with_the_cure_and_the_port_is_still_tried(tmp_path: Path):
    config = load().config
    models = replace(config.models, folder=str(tmp_path))
    report = await check(replace(config, models=models, server=replace(config.server, port=0)))
    assert not report.ok
    ok, detail, cure = finding(report, "models")
    assert (ok, cure) == (False, "session-server models fetch")
    assert str(tmp_path) in detail
    assert finding(report, "port")[0]
    assert finding(report, "round trip") == (False, "not tried: models are missing", cure)


@pytest.mark.asyncio
async def test_the_cure_for_missing_models_of_vision_fetches_them(tmp_path: Path):
    config = load(Path("cpu-vision.yaml")).config
    models = replace(config.models, folder=str(tmp_path))
    report = await check(replace(config, models=models, server=replace(config.server, port=0)))
    ok, detail, cure = finding(report, "models")
    assert (ok, cure) == (False, "session-server models fetch --vision")
    assert "nanodet.onnx" in detail
    assert finding(report, "round trip")[2] == cure


@pytest.mark.asyncio
async def test_a_record_that_cannot_be_written_is_named_with_the_cure(tmp_path: Path):
    config = load().config  # without its models, so that nothing is tried
    models = replace(config.models, folder=str(tmp_path))
    for file, well in (("talks.jsonl", True), ("missing/talks.jsonl", False)):
        log = replace(config.observability, record_file=str(tmp_path / file))
        server = replace(config.server, port=0)
        report = await check(replace(config, models=models, server=server, observability=log))
        ok, detail, cure = finding(report, "record")
        assert ok is well
        assert str(tmp_path / file) in detail
        assert ok or cure
    assert not (tmp_path / "talks.jsonl").exists()


@pytest.mark.asyncio
async def test_what_an_engine_lacks_is_named_and_no_round_trip_is_tried(tmp_path: Path):
    config = load(Path("vllm-cpu.yaml")).config
    models = replace(config.models, folder=str(tmp_path))
    report = await check(replace(config, models=models, server=replace(config.server, port=0)))
    lacking = [f for f in report.findings if f.name == "thinker (vllm.thinker)"]
    assert any("python -m engines.vllm.convert" in f.detail for f in lacking)
    assert all(not f.ok and f.cure.endswith("docs/big_engines.md") for f in lacking)
    assert not finding(report, "round trip")[0]


@pytest.mark.asyncio
async def test_a_model_server_that_cannot_be_reached_is_to_be_started_or_named_anew():
    with socket.socket() as nobody:  # bound, and nobody listens
        nobody.bind(("127.0.0.1", 0))
        options = {"base_url": f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"}
        config = simulated()
        stages = tuple(
            replace(spec, engine="remote.openai_chat", options=options)
            if spec.stage is Stage.THINKER
            else spec
            for spec in config.graph.stages
        )
        report = await check(replace(config, graph=replace(config.graph, stages=stages)))
    ok, detail, cure = finding(report, "round trip")
    assert not ok
    assert "the model server cannot be reached: connection refused" in detail
    assert cure.startswith(
        "start the model server, or set graph.stages.thinker.options.base_url; see docs/"
    )


@pytest.mark.asyncio
async def test_a_port_held_by_something_else_is_named_with_the_cure():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        report = await check(simulated(port))
    ok, detail, cure = finding(report, "port")
    assert not ok
    assert str(port) in detail
    assert "--port" in cure


@pytest.mark.asyncio
async def test_an_engine_that_does_not_load_is_a_finding_not_a_crash():
    config = simulated()
    stages = tuple(
        replace(spec, options={"nonsense": 1}) if spec.stage.value == "asr" else spec
        for spec in config.graph.stages
    )
    report = await check(replace(config, graph=replace(config.graph, stages=stages)))
    ok, detail, cure = finding(report, "asr (sim.asr)")
    assert (ok, cure) == (False, "correct it; see docs/simulation.md")
    assert detail.startswith("graph.stages.asr.options.nonsense: unknown option")
    assert finding(report, "round trip")[:2] == (False, "not tried: asr (sim.asr) cannot start")
