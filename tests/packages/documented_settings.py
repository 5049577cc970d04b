"""Settings for knft.service that docs/operations/systemd.md gives as examples."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.packages.installed_service import UNIT, Service

_PAGE = Path(__file__).parents[2] / "docs/operations/systemd.md"
_DROP_IN = f"/etc/systemd/system/{UNIT}.d/override.conf"
"""What ``systemctl edit`` writes."""


def code_blocks(anchor: str) -> list[str]:
    """Return the YAML documents and drop-ins of a section, in their order."""
    section = _PAGE.read_text().partition(f" {{#{anchor}}}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    return re.findall(r"^```(?:yaml|ini)\n(.+?)^```$", section, re.MULTILINE | re.DOTALL)


@contextmanager
def used_drop_in(unit: Service, text: str) -> Iterator[None]:
    """Stop the unit, and let it use a drop-in until the block ends; then stop it and remove its rules."""
    unit.container.run("systemctl", "stop", UNIT)
    unit.container.write(_DROP_IN, text)
    unit.container.run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        unit.container.run("systemctl", "stop", UNIT)
        unit.container.run("rm", _DROP_IN)
        unit.container.run("systemctl", "daemon-reload")
        unit.container.run("nft", "flush", "ruleset")
