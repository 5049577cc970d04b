"""The results of a run: reads ginkgo's JUnit reports, and formats them. Computes only."""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from xml.etree import ElementTree as ET

from msgspec import Struct

_TEST = "[It] "
_MESSAGE_CHARACTERS = 600


class Outcome(StrEnum):
    """How a spec ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Result(Struct, frozen=True):
    """A spec that ran, or skipped itself; ``message`` is the failure or the reason."""

    name: str
    outcome: Outcome
    seconds: float
    message: str = ""


def parse_junit(text: str) -> list[Result]:
    """Return the specs of a JUnit report, without those that the filters left out."""
    # The report comes from a program that this project builds.
    cases = ET.fromstring(text).iter("testcase")  # noqa: S314
    return sorted(filter(None, map(_result, cases)), key=lambda result: result.name)


def _result(case: ET.Element) -> Result | None:
    name, seconds = case.get("name", ""), float(case.get("time") or 0)
    failure = next((found for tag in ("failure", "error") if (found := case.find(tag)) is not None), None)
    if failure is not None:
        # Also a failure outside of a spec, such as that no node is ready.
        return Result(name.removeprefix(_TEST), Outcome.FAILED, seconds, _message(failure))
    if not name.startswith(_TEST):
        return None
    name, skipped = name.removeprefix(_TEST), case.find("skipped")
    if skipped is None:
        return Result(name, Outcome.PASSED, seconds)
    message = _message(skipped)
    # Ginkgo gives a message only to specs that skip themselves.
    return Result(name, Outcome.SKIPPED, seconds, message) if message not in ("", "skipped") else None


def _message(element: ET.Element) -> str:
    text = element.get("message") or element.text or ""
    return " ".join(text.removeprefix("skipped - ").split())[:_MESSAGE_CHARACTERS]


def summary(results: Iterable[Result]) -> Iterator[str]:
    """Yield a line for each spec, failed ones last, and the totals."""
    results = list(results)
    order = [Outcome.PASSED, Outcome.SKIPPED, Outcome.FAILED]
    for result in sorted(results, key=lambda each: order.index(each.outcome)):
        yield f"{result.outcome:7} {result.seconds:6.1f} s  {result.name}"
        if result.message:
            yield f"    {result.message}"
    counts = Counter(result.outcome for result in results)
    yield ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)
