"""``knft cleanup``: removes knft's tables."""

from contextlib import AbstractContextManager, nullcontext

from knft.app.instance_lock import take_instance_lock
from knft.cli.cleanup_report import CleanupReport
from knft.cli.table_removal import remove_table
from knft.errors import InstanceLockedError, KernelError
from knft.families import Family
from knft.kernel.probe import require_privilege
from knft.kernel.process import WorkerProcess
from knft.render.names import TABLE


def cleanup(report: CleanupReport, *, wait_for_lock: bool = False, force: bool = False) -> None:
    """Remove the tables of both families, and report which of them existed; raise KernelError after a failure.

    In a dry run, remove nothing, and report what would be removed, also while another knft process runs.

    Otherwise, if another knft process runs in this network namespace, raise InstanceLockedError; wait for its exit
    first if ``wait_for_lock`` is set, or remove the tables nevertheless if ``force`` is set.
    """
    require_privilege()
    try:
        lock: AbstractContextManager[object] = take_instance_lock(wait=wait_for_lock and not force)
    except InstanceLockedError as error:
        lock = _without_lock(error, report, force=force)
    with lock:
        _remove_tables(report)
    report.finish("knft's tables")


def _without_lock(error: InstanceLockedError, report: CleanupReport, *, force: bool) -> AbstractContextManager[object]:
    """Report that another knft process runs, and continue; raise if tables would be removed without force."""
    if report.dry_run:
        report.warn(f"{error}; stop it before the cleanup, because it would create the tables again")
    elif force:
        report.warn(f"{error}; it will create the tables again")
    else:
        msg = (
            f"{error}; stop it first, because it would create the tables again (`knft cleanup --force` removes them "
            "nevertheless)"
        )
        raise InstanceLockedError(msg) from error
    return nullcontext()


def _remove_tables(report: CleanupReport) -> None:
    with WorkerProcess() as library:
        for family in Family:
            try:
                remove_table(library, family, TABLE, report)
            except KernelError as error:
                verb = "list" if report.dry_run else "remove"
                table = f"table {family.nft} {TABLE}"
                report.fail(table, f"cannot {verb} {table}: {error}")
