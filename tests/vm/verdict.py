"""What the guest reported: qemu exits with 0 whatever happened in it.

One line with the kernel's release and the tests' exit status, and pytest's report as JUnit XML.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

from tests.vm.errors import VmError
from tests.vm.kernel import SERIES


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the tests in the guest ended."""

    release: str
    status: int
    tests: int
    failures: int
    errors: int
    skipped: int

    def failure_messages(self) -> Iterator[str]:
        """Say everything that makes the run a failure."""
        if not self.release.startswith(f"{SERIES}."):
            yield f"the guest's kernel is {self.release}, not {SERIES}"
        if self.tests == 0:
            yield "no test ran"
        for count, what in ((self.failures, "failed"), (self.errors, "had errors"), (self.skipped, "were skipped")):
            if count:
                yield f"{count} tests {what}"
        if self.status != 0:
            yield f"pytest's exit status was {self.status}"


def parse(report: bytes) -> Verdict:
    """Read the guest's report; one that is missing or cut off is an error."""
    head, _, document = report.partition(b"\n")
    try:
        release, status = head.decode().split()
        suites = ET.fromstring(document).iter("testsuite")  # noqa: S314 - written by our own tests
        counts = [[int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")] for suite in suites]
        return Verdict(release, int(status), *map(sum, zip(*counts, strict=True)))
    except (ValueError, KeyError, TypeError, ET.ParseError) as error:
        msg = f"the guest ended without a report: {report[:200]!r}"
        raise VmError(msg) from error
