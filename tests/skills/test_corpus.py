"""The rules on the sentences that were committed before them."""

import pytest

from tests.skills.corpus import judge, taken


@pytest.mark.parametrize("file", ["ohf-intents.tsv", "own.tsv"])
def test_most_sentences_are_understood_and_none_with_a_wrong_value(file):
    score = judge(file)
    assert score.wrong == []
    assert score.right >= 0.95 * score.total, score.missed


def test_no_general_question_is_taken():
    assert taken("general.txt") == []
