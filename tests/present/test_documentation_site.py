"""The documentation site in a browser: pages fit a phone, and names in the first column of tables are whole."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.present.browser import Browser, browser

ROOT = Path(__file__).parent.parent.parent
PAGES = ("index", "comparing", "configuration", "operations/index", "operations/metrics", "operations/alerts")
_BROKEN_NAMES = """Array.from(document.querySelectorAll('article td:first-child code')).filter((item) => {
  if (!/^\\w{1,24}$/.test(item.textContent)) return false;
  const range = document.createRange();
  range.selectNodeContents(item);
  return new Set(Array.from(range.getClientRects()).map((box) => Math.round(box.top))).size > 1;
}).map((item) => item.textContent)"""
"""The names of at most 24 letters, digits and underscores in first columns that take several lines."""
_CUT_OFF = """Array.from(document.querySelectorAll('article *')).filter((item) =>
  item.getBoundingClientRect().right > innerWidth
  && !item.closest('.md-typeset__scrollwrap, pre, .md-typeset__table')).map((item) => item.outerHTML.slice(0, 80))"""
"""The elements that are outside of the window, except those in tables and code blocks, which scroll."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--config-file", "mkdocs.yml"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "site"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as instance:
        yield instance


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("page", PAGES)
def test_page_fits_the_window(page: str, width: int, site: Path, chromium: Browser) -> None:
    chromium.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    chromium.open("about:blank")
    chromium.open((site / f"{page}.html").as_uri())

    assert chromium.run("document.documentElement.scrollWidth") <= width
    assert chromium.run(_CUT_OFF) == []
    assert chromium.run(_BROKEN_NAMES) == []


def test_pages_request_nothing_from_other_hosts(site: Path, chromium: Browser) -> None:
    for page in PAGES:
        chromium.open("about:blank")
        chromium.open((site / f"{page}.html").as_uri())
        assert [url for url in chromium.requests if not url.startswith(("file:", "data:"))] == []
