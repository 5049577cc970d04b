"""Parses the guest's report: a guest's process exits with 0, whatever its tests did.

The report is a line with the kernel's release and pytest's exit status, followed by pytest's JUnit XML.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

from tests.vm.errors import VmError


@dataclass(frozen=True, slots=True)
class GuestResult:
    """The result of the tests in the guest."""

    release: str
    status: int
    tests: int
    failures: int
    errors: int
    skipped: int

    def failure_messages(self, version: str) -> Iterator[str]:
        """Yield each reason why the run on a kernel of this version, such as 6.1, has failed."""
        if not self.release.startswith(f"{version}."):
            yield f"the guest's kernel is {self.release}, not {version}"
        if self.tests == 0:
            yield "no test ran"
        for count, what in ((self.failures, "failed"), (self.errors, "had errors"), (self.skipped, "were skipped")):
            if count:
                yield f"{count} tests {what}"
        if self.status != 0:
            yield f"pytest's exit status was {self.status}"


def parse(report: bytes) -> GuestResult:
    """Return the result; raise VmError if the report is missing or incomplete."""
    head, _, document = report.partition(b"\n")
    try:
        release, status = head.decode().split()
        suites = ET.fromstring(document).iter("testsuite")  # noqa: S314 - written by our own tests
        counts = [[int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")] for suite in suites]
        return GuestResult(release, int(status), *map(sum, zip(*counts, strict=True)))
    except (ValueError, KeyError, TypeError, ET.ParseError) as error:
        msg = f"the guest ended without a report: {report[:200]!r}"
        raise VmError(msg) from error
