"""Positions of prompts with pictures and sounds are those of transformers, in whatever parts they are asked for."""

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.omni.stage_payloads import Layout, Span, behind  # noqa: E402
from tests.integration.engines_omni import kinds  # noqa: E402

pytestmark = pytest.mark.integration

TEXT, START, END, PICTURE = 5, 151652, 151653, 151655


@pytest.fixture(scope="module")
def thinker(folders):
    from engines.omni.options import ThinkerOptions
    from engines.omni.weights import QWEN3, Weights

    return Weights(ThinkerOptions(weights=str(folders(kinds.QWEN3))), QWEN3).module(QWEN3.thinker)


def a_prompt(rng: random.Random) -> tuple[list[int], tuple[Span, ...]]:
    tokens: list[int] = [TEXT] * rng.randrange(1, 9)
    spans = []
    for _ in range(rng.randrange(5)):
        rows, columns = rng.randrange(1, 7), rng.randrange(1, 7)
        tokens.append(START)
        spans.append(Span(len(tokens), rows, columns))
        tokens += [PICTURE] * (rows * columns) + [END] + [TEXT] * rng.randrange(0, 9)
    return tokens, tuple(spans)


def test_positions_are_those_of_the_published_index(thinker):
    rng = random.Random(11)
    for _ in range(60):
        tokens, spans = a_prompt(rng)
        ids = torch.tensor([tokens])
        grids = torch.tensor([[1, 2 * s.rows, 2 * s.columns] for s in spans]) if spans else None
        theirs, delta = thinker.get_rope_index(ids, grids, attention_mask=torch.ones_like(ids))
        layout = Layout(spans)
        assert torch.equal(layout.positions(0, len(tokens)).float(), theirs[:, 0].float())
        assert layout.lag == -int(delta)
        begin = rng.randrange(len(tokens))
        end = rng.randrange(begin, len(tokens) + 1)
        assert torch.equal(
            layout.positions(begin, end), layout.positions(0, len(tokens))[:, begin:end]
        )


def test_an_answer_goes_on_behind_the_prompt():
    layout = Layout((Span(4, 3, 5),))
    (last,) = {tuple(p.tolist()) for p in layout.positions(19, 20).T}
    assert last == (9, 9, 9)
    assert behind([20, 7], [layout.lag, 0])[:, :, 0].tolist() == [[10, 7]] * 3
    assert behind([20, 7], [0, 0]) is None


def test_what_is_left_of_a_cut_prompt_keeps_whole_pictures_whole():
    layout = Layout((Span(4, 3, 5), Span(30, 2, 2))).without(6)
    assert layout == Layout((Span(24, 2, 2),))
    assert layout.positions(0, 3).tolist() == [[0, 1, 2]] * 3
