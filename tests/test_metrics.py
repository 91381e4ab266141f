"""Metrics against values worked out by hand."""

import math

import pytest

from memstore import metrics


def test_ranks_of_right_rows():
    assert metrics.gold_ranks(["c", "a", "x", "b"], {"a", "b", "lost"}) == [2, 4, None]
    assert metrics.gold_ranks([], {"a"}) == [None]


def test_a_unit_has_the_rank_of_its_first_row():
    returned = ["x", "a", "b", "c"]
    assert metrics.unit_ranks(returned, [{"b", "a"}, {"c"}, {"lost"}]) == [2, 4, None]
    assert metrics.unit_ranks(returned, [{"a"}, {"a", "lost"}]) == [2]  # one row gives both
    assert metrics.unit_ranks([], [{"a"}, {"a"}]) == [None, None]


@pytest.mark.parametrize(
    ("ranks", "recall_5", "any_5", "all_5", "recall_10", "all_10", "reciprocal"),
    [
        ([1, 5, 6, None], 0.5, 1.0, 0.0, 0.75, 0.0, 1.0),
        ([10], 0.0, 0.0, 0.0, 1.0, 1.0, 0.1),
        ([11, None], 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        ([2, 4], 1.0, 1.0, 1.0, 1.0, 1.0, 0.5),
        ([None], 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        ([1, 2, 3, 4, 5, 6], 5 / 6, 1.0, 0.0, 1.0, 1.0, 1.0),  # six rows do not fit into five
    ],
)
def test_one_question(ranks, recall_5, any_5, all_5, recall_10, all_10, reciprocal):
    assert metrics.recall_at(ranks, 5) == recall_5
    assert metrics.any_at(ranks, 5) == any_5
    assert metrics.all_at(ranks, 5) == all_5
    assert metrics.recall_at(ranks, 10) == recall_10
    assert metrics.all_at(ranks, 10) == all_10
    assert metrics.reciprocal_rank_at(ranks, 10) == pytest.approx(reciprocal)


LOG2_3 = math.log2(3)


@pytest.mark.parametrize(
    ("ranks", "ndcg_10"),
    [
        ([1], 1.0),
        ([3], 0.5),  # 1 / log2(4)
        ([2], 1 / LOG2_3),
        ([1, 2], 1.0),
        ([1, 3], (1 + 0.5) / (1 + 1 / LOG2_3)),
        ([3, None], 0.5 / (1 + 1 / LOG2_3)),
        ([11], 0.0),
        ([None, None], 0.0),
        (list(range(1, 13)), 1.0),  # twelve right rows, the ten best places taken by them
    ],
)
def test_ndcg(ranks, ndcg_10):
    assert metrics.ndcg_at(ranks, 10) == pytest.approx(ndcg_10)


def test_ndcg_of_a_smaller_k():
    assert metrics.ndcg_at([1, 3], 2) == pytest.approx(1 / (1 + 1 / LOG2_3))
    assert metrics.ndcg_at([1, 3], 1) == 1.0


def test_the_summary_takes_each_k_from_its_own_answer():
    five = [[1, None], [None], [4]]
    ten = [[1, None], [6], [3]]
    assert metrics.summary({5: five, 10: ten}, 10) == {
        "recall@5": 0.5,
        "recall@10": 0.8333,
        "any@5": 0.6667,
        "any@10": 1.0,
        "all@5": 0.3333,
        "all@10": 0.6667,
        "hit@10": 1.0,
        "mrr@10": 0.5,  # (1 + 1/6 + 1/3) / 3
        "ndcg@10": 0.4898,  # (1 / 1.63093 + 1 / log2(7) + 1 / 2) / 3
    }


def test_no_question_has_no_mean():
    assert set(metrics.summary({10: []}, 10).values()) == {None}
    assert metrics.mean([]) is None
    assert metrics.mean([1, 0, 0]) == 0.3333
