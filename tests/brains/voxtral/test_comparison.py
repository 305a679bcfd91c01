"""What counts as equal logits."""

from __future__ import annotations

import math

import pytest
import torch

from voxtui.brains.voxtral.equality import Comparison

RELATIVE = 0.01
"""The bound, per root mean square of the logits."""


@pytest.fixture
def plain() -> torch.Tensor:
    """Logits with a root mean square of 1, so that the bound is 0.01."""
    drawn = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    return drawn / drawn.square().mean().sqrt()


def test_logits_within_the_bound_are_equal_and_the_largest_difference_is_kept(
    plain: torch.Tensor,
) -> None:
    comparison = Comparison()
    for share in (0.2, 0.7, 0.4):
        other = plain.clone()
        other[500] += share * RELATIVE
        assert comparison.add(plain, other, RELATIVE)
    assert (comparison.steps, comparison.flips, comparison.why) == (3, 0, "")
    assert comparison.worst == pytest.approx(0.7, abs=1e-3)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (1.5 * RELATIVE, "The logits of step 2 differ by 1.5 bounds."),
        (100.0, "Step 2 has another likeliest token."),
        (math.nan, "A logit of step 2 is not a number."),
        (math.inf, "A logit of step 2 is not a number."),
    ],
)
def test_one_wrong_logit_makes_a_path_different(
    plain: torch.Tensor, wrong: float, why: str
) -> None:
    comparison, other = Comparison(), plain.clone()
    assert comparison.add(plain, plain, RELATIVE)
    other[int(plain.argmin())] += wrong
    assert not comparison.add(plain, other, RELATIVE)
    assert comparison.why == why


def test_another_likeliest_token_counts_as_a_near_tie_only_within_the_bound(
    plain: torch.Tensor,
) -> None:
    best, near = int(plain.argmax()), int(plain.argmin())
    plain[near] = plain[best] - 0.5 * RELATIVE
    other = plain.clone()
    other[near] += 0.9 * RELATIVE
    comparison = Comparison()
    assert comparison.add(plain, other, RELATIVE)
    assert (comparison.flips, comparison.why) == (1, "")
