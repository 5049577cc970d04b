"""The text of an outcome of ``knft trace``."""

from knft.cli.trace_text import _outcome_text
from knft.interpret.trace import TracedOutcome


def test_the_reason_follows_session_affinity_after_a_colon() -> None:
    outcome = TracedOutcome("1", 100.0, "delivered", "10.244.1.11:8080", "masqueraded", "policy", 10800, ())
    expected = "reaches 10.244.1.11:8080, masqueraded, session affinity for 10800 s: policy"
    assert _outcome_text(outcome) == expected
