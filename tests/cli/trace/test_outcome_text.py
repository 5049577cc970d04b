"""The text of an outcome of ``knft trace``."""

import pytest
from msgspec.structs import replace

from knft.cli.trace_text import _conclusion_of_case, _outcome, _outcome_text
from knft.interpret.trace import TracedOutcome


def test_the_reason_follows_session_affinity_after_a_colon() -> None:
    outcome = TracedOutcome("1", 100.0, "delivered", "10.244.1.11:8080", "masqueraded", "policy", 10800, ())
    expected = "reaches 10.244.1.11:8080, masqueraded, session affinity for 10800 s: policy"
    assert _outcome_text(outcome) == expected


DROPPED = TracedOutcome("1/2", 50.0, "dropped", "", "kept", "", None, ())
REACHED = TracedOutcome("1/2", 50.0, "delivered", "10.244.1.11:8080", "kept", "", None, ())
UNDECIDED = TracedOutcome("1/2", 50.0, "undecided", "", "kept", "a rule is not interpreted", None, ())


@pytest.mark.parametrize(
    ("outcomes", "conclusion"),
    [
        ([replace(UNDECIDED, share="1")], "the outcome is undecided: a rule is not interpreted"),
        ([UNDECIDED, DROPPED], "is dropped or the outcome is undecided: a rule is not interpreted"),
        ([UNDECIDED, REACHED], "reaches 10.244.1.11:8080 or the outcome is undecided: a rule is not interpreted"),
    ],
)
def test_the_outcome_is_undecided_and_not_the_packet(outcomes: list[TracedOutcome], conclusion: str) -> None:
    assert _conclusion_of_case(outcomes) == conclusion


def test_share_of_an_undecided_outcome_has_a_colon() -> None:
    assert _outcome(UNDECIDED) == "1/2 (50 %): the outcome is undecided: a rule is not interpreted"
    assert _outcome(DROPPED) == "1/2 (50 %) is dropped"
