"""Reciprocal rank fusion, to the last digit."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.ranking import RRF_K, fuse_ranks, keep_within, reciprocal_rank_fusion

RANKINGS = st.lists(st.lists(st.integers(0, 12), max_size=12), max_size=4)
PLACES = st.lists(st.permutations(range(8)).map(lambda p: p[:5]), min_size=1, max_size=3)


def test_scores_are_the_sum_of_reciprocal_ranks():
    assert RRF_K == 60
    fused = dict(reciprocal_rank_fusion([["a", "b", "c"], ["c", "a", "d"]]))
    assert fused == {"a": 1 / 61 + 1 / 62, "b": 1 / 62, "c": 1 / 63 + 1 / 61, "d": 1 / 63}
    assert [item for item, _ in reciprocal_rank_fusion([["a", "b", "c"], ["c", "a", "d"]])] == [
        "a",
        "c",
        "b",
        "d",
    ]


def test_k_and_weights():
    assert reciprocal_rank_fusion([["a", "b"]], k=0) == [("a", 1.0), ("b", 0.5)]
    assert reciprocal_rank_fusion([["a"], ["b"]], 1, weights=[1, 3]) == [("b", 1.5), ("a", 0.5)]
    assert reciprocal_rank_fusion([["a"], ["b"]], weights=[0, 1])[0][0] == "b"
    assert dict(reciprocal_rank_fusion([["a"], ["b"]], weights=[0, 1]))["a"] == 0.0
    with pytest.raises(ValueError, match="weights"):
        reciprocal_rank_fusion([["a"], ["b"]], weights=[1])
    with pytest.raises(ValueError, match="k"):
        reciprocal_rank_fusion([["a"]], k=-1)


def test_a_repeat_counts_once_at_its_best_rank_and_takes_no_place():
    assert reciprocal_rank_fusion([["a", "a", "b", "a"]]) == [("a", 1 / 61), ("b", 1 / 62)]


def test_nothing_fuses_to_nothing():
    assert reciprocal_rank_fusion([]) == []
    assert reciprocal_rank_fusion([[], []]) == []


def test_ties_go_to_the_better_rank_in_the_first_list_then_to_the_tie_break():
    assert [i for i, _ in reciprocal_rank_fusion([["b", "a"], ["a", "b"]])] == ["b", "a"]
    one_each = [["b"], ["a"]]
    assert [i for i, _ in reciprocal_rank_fusion(one_each)] == ["b", "a"]  # absent is worst
    assert [i for i, _ in reciprocal_rank_fusion(one_each, tie_break=lambda i: i)] == ["b", "a"]
    shared = [{"c": 1, "a": 1, "b": 1}]
    assert [i for i, _ in fuse_ranks(shared)] == ["c", "a", "b"]  # first seen
    assert [i for i, _ in fuse_ranks(shared, tie_break=lambda i: i)] == ["a", "b", "c"]
    assert [i for i, _ in fuse_ranks(shared, tie_break=lambda i: -ord(i))] == ["c", "b", "a"]


def test_noise_in_the_last_digits_is_a_tie():
    """The same terms summed in another order differ in the 17th digit; that must not decide."""
    ranks = [{"x": 1, "y": 3}, {"x": 2, "y": 1}, {"x": 3, "y": 2}]
    order = [item for item, _ in fuse_ranks(ranks, tie_break=lambda i: i)]
    assert order == ["x", "y"]
    assert fuse_ranks(ranks[::-1], tie_break=lambda i: i)[0][0] == "y"  # the first list decides


def test_several_items_may_share_a_rank():
    assert dict(fuse_ranks([{"a": 1, "b": 1}, {"a": 1}])) == {"a": 2 / 61, "b": 1 / 61}


@given(RANKINGS)
def test_scores_are_exact_and_best_comes_first(rankings):
    fused = reciprocal_rank_fusion(rankings)
    expected: dict[int, Fraction] = {}
    for ranking in rankings:
        for rank, item in enumerate(dict.fromkeys(ranking), 1):
            expected[item] = expected.get(item, Fraction(0)) + Fraction(1, 60 + rank)
    assert {item for item, _ in fused} == set(expected)
    for item, score in fused:
        assert math.isclose(score, float(expected[item]), rel_tol=1e-14)
    exact = [expected[item] for item, _ in fused]
    assert all(a >= b or math.isclose(a, b, abs_tol=1e-12) for a, b in pairwise(exact))


@given(RANKINGS, st.randoms(use_true_random=False))
def test_the_order_of_the_lists_does_not_change_a_score(rankings, random):
    shuffled = list(rankings)
    random.shuffle(shuffled)
    one, other = dict(reciprocal_rank_fusion(rankings)), dict(reciprocal_rank_fusion(shuffled))
    assert one.keys() == other.keys()
    assert all(math.isclose(one[item], other[item], rel_tol=1e-14) for item in one)


@given(RANKINGS)
def test_the_names_of_the_items_do_not_change_the_order(rankings):
    renamed = [[f"item {100 - item}" for item in ranking] for ranking in rankings]
    assert [f"item {100 - item}" for item, _ in reciprocal_rank_fusion(rankings)] == [
        item for item, _ in reciprocal_rank_fusion(renamed)
    ]


@given(PLACES, st.integers(0, 2), st.integers(1, 4))
def test_a_better_rank_never_lowers_an_items_score(rankings, which, place):
    which %= len(rankings)
    item = rankings[which][place]
    moved = [list(ranking) for ranking in rankings]
    moved[which][place - 1], moved[which][place] = moved[which][place], moved[which][place - 1]
    assert dict(reciprocal_rank_fusion(moved))[item] > dict(reciprocal_rank_fusion(rankings))[item]
    order = [i for i, _ in reciprocal_rank_fusion(rankings)]
    moved_order = [i for i, _ in reciprocal_rank_fusion(moved)]
    assert moved_order.index(item) <= order.index(item)


@given(PLACES)
def test_the_same_input_gives_the_same_order(rankings):
    first = reciprocal_rank_fusion(rankings, tie_break=lambda i: i)
    assert all(reciprocal_rank_fusion(rankings, tie_break=lambda i: i) == first for _ in range(3))


# --- keep_within ----------------------------------------------------------------------------------------------------


def test_certain_items_displace_the_last_uncertain_ones():
    assert keep_within("abcdef", {"f": 0}, 3) == ["a", "b", "f"]
    assert keep_within("abcdef", {"e": 0, "f": 0}, 3) == ["a", "e", "f"]
    assert keep_within("abcdef", {"c": 0, "f": 0}, 3) == ["a", "c", "f"]
    assert keep_within("abcdef", {"a": 0}, 3) == ["a", "b", "c"]
    assert keep_within("abc", {}, 5) == ["a", "b", "c"]
    assert keep_within("abc", {"c": 0}, 0) == []
    assert keep_within("abcdef", dict.fromkeys("cdef"), 2) == ["c", "d"]


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)), st.integers(0, 14))
def test_no_certain_item_is_lost_while_there_is_room(ordered, certain, limit):
    kept = keep_within(ordered, dict.fromkeys(certain), limit)
    assert len(kept) == len(set(kept)) == min(limit, len(ordered))
    in_order = [item for item in ordered if item in certain]
    assert [item for item in kept if item in certain] == in_order[: len([i for i in kept if i in certain])]
    if len(certain) <= limit:
        assert certain <= set(kept)
    else:
        assert set(kept) <= certain
    assert sorted(kept, key=ordered.index) == kept
