"""Greedy choice that does not go round in circles."""

import numpy as np
import pytest

from engines.cpu.decoding import LIST_RUN, STORY_RUN, GreedyChoice

pytestmark = pytest.mark.unit


def logits(*favourites: int, size: int = 50) -> np.ndarray:
    values = np.zeros(size, np.float32)
    for rank, token in enumerate(favourites):
        values[token] = 10 - rank / 2
    return values


def test_the_best_token_is_taken() -> None:
    assert GreedyChoice().choose(logits(7, 3)) == 7


def test_a_token_said_lately_gives_way_to_one_as_good() -> None:
    choice = GreedyChoice()
    choice.take(7)
    assert choice.choose(logits(7, 3)) == 3


@pytest.mark.parametrize("run", [STORY_RUN, LIST_RUN])
def test_no_run_comes_twice(run: int) -> None:
    choice = GreedyChoice(run)
    said: list[int] = []
    for _ in range(200):
        token = choice.choose(logits(5))
        choice.take(token)
        said.append(token)
    runs = [tuple(said[i : i + run]) for i in range(len(said) - run + 1)]
    assert len(runs) == len(set(runs))


def test_counting_goes_on() -> None:
    """ "21, 22" repeats parts of "1, 2"; that must not end the count."""
    choice = GreedyChoice()
    said = []
    wanted = [t for n in range(1, 60) for t in (*[int(d) for d in str(n)], 10)]
    for token in wanted:
        values = np.zeros(50, np.float32)
        values[token] = 100.0
        said.append(choice.choose(values))
        choice.take(said[-1])
    assert said == wanted
