"""What the child process that lists a table says with its exit status."""

import subprocess
import sys

import pytest

from knft.kernel.library import Library
from knft.kernel.lister import NO_SUCH_TABLE
from knft.kernel.table import KernelTable
from tests.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

LISTER = (sys.executable, "-m", "knft.kernel.lister", "ip", "knft")
WITHOUT_PRIVILEGE = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")


def _listed(namespace: Namespace, *before: str) -> subprocess.CompletedProcess[str]:
    return namespace.run([*before, *LISTER], check=False)


def test_a_table_that_is_there_is_listed(namespace: Namespace) -> None:
    namespace.run(["nft", "add", "table", "ip", "knft"])
    done = _listed(namespace)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"knft"' in done.stdout


def test_a_table_that_is_not_there_is_told_from_a_failure(namespace: Namespace) -> None:
    """Where every failure counted as no table, knft would add to a table that it does not know."""
    absent, refused = _listed(namespace), _listed(namespace, *WITHOUT_PRIVILEGE)
    assert (absent.returncode, refused.returncode) == (NO_SUCH_TABLE, 1)
    assert "Operation not permitted" in refused.stderr


def test_no_table_is_read_as_none(namespace: Namespace) -> None:
    assert KernelTable(Library(), "ip", "knft").read() is None
    assert namespace.run(["nft", "list", "tables"]).stdout == ""
