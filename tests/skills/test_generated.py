"""Right or silent: generated sentences beside Python's own computation."""

from __future__ import annotations

import pytest

from tests.skills.generated import Generator, judge

pytestmark = pytest.mark.usefixtures("berlin")


def test_no_generated_sentence_is_answered_wrongly():
    tally = judge(Generator(seed=5).cases(3000))
    assert tally.wrong[:10] == []
    assert tally.counts["silent"] < 0.2 * 3000


@pytest.mark.slow
def test_of_thirty_thousand_generated_sentences_none_is_answered_wrongly():
    tally = judge(Generator(seed=6).cases(30_000))
    assert tally.wrong[:10] == []
