"""Every stepped engine keeps its contract wherever its stage is placed: on a thread of the server's, in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from engines.base import Stage
from engines.conformance.stepped import (
    CHECKS,
    Check,
    SteppedKit,
    an_engine_that_was_closed_can_be_loaded_again,
    storm,
)
from engines.graph import Placement, StageSpec
from engines.model_store.store import ModelStore
from session_server.types.errors import ConfigError, ModelsMissing
from tests.placed import PlacedEngine
from tests.unit.engines.conformance.test_stepped import OPTIONS, REAL, SIM, Kit

pytestmark = pytest.mark.integration


@dataclass
class Placed:
    """The engines of one family, each where it is asked for; what they are fed comes from engines of the test's own."""

    kit: Kit
    engines: dict[tuple[Stage, Placement], PlacedEngine] = field(default_factory=dict)

    def engine(self, stage: Stage, placement: Placement) -> PlacedEngine:
        if (stage, placement) not in self.engines:
            name = self.kit.names[stage]
            options = OPTIONS.get(name, {})
            spec = StageSpec(stage, name, 8, placement, options=options)
            engine = PlacedEngine(spec, self.kit.store)
            self.engines[stage, placement] = engine
            engine.load()
        return self.engines[stage, placement]

    def tools(self, stage: Stage, placement: Placement) -> SteppedKit:
        tools = self.kit.tools(stage)
        return replace(tools, create=lambda: self.engine(stage, placement), held=None)

    def end(self) -> None:
        for engine in self.engines.values():
            engine.end()
        for loaded in self.kit.loaded.values():
            loaded.close()


@pytest.fixture(scope="module")
def families() -> Iterator[dict[str, Placed]]:
    models = ModelStore(Path(os.environ.get("SESSION_SERVER_MODELS", "no-models")))
    made = {"sim": Placed(Kit(SIM, models)), "real": Placed(Kit(REAL, models))}
    yield made
    for placed in made.values():
        placed.end()


@pytest.fixture(params=Placement, ids=lambda placement: placement.value)
def placement(request: pytest.FixtureRequest) -> Placement:
    found: Placement = request.param
    return found


@pytest.fixture(
    params=[
        *(pytest.param(("sim", s), id=SIM[s]) for s in SIM),
        *(pytest.param(("real", s), id=REAL[s], marks=pytest.mark.models) for s in REAL),
    ]
)
def case(
    request: pytest.FixtureRequest, families: dict[str, Placed], placement: Placement
) -> tuple[SteppedKit, PlacedEngine]:
    family, stage = request.param
    placed = families[family]
    try:
        engine = placed.engine(stage, placement)
    except (ModelsMissing, ConfigError) as error:
        pytest.skip(str(error))
    return placed.tools(stage, placement), engine


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_holds_where_the_stage_is(
    case: tuple[SteppedKit, PlacedEngine], check: Check
) -> None:
    check(*case)


def test_much_at_once_in_random_order(case: tuple[SteppedKit, PlacedEngine]) -> None:
    storm(*case, seed=1, moves=40)


@pytest.mark.parametrize("stage", SIM, ids=SIM.values())
def test_an_engine_that_was_loaded_again_knows_nothing_of_before(
    families: dict[str, Placed], stage: Stage, placement: Placement
) -> None:
    """A load makes the one that there is anew."""
    an_engine_that_was_closed_can_be_loaded_again(families["sim"].tools(stage, placement))
