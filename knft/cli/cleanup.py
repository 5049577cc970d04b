"""``knft cleanup``: removes knft's tables."""

import logging
from contextlib import AbstractContextManager, nullcontext

from knft.app.instance_lock import take_instance_lock
from knft.cli.output import Output
from knft.cli.table_removal import remove_table
from knft.errors import InstanceLockedError, KernelError
from knft.families import Family
from knft.kernel.probe import require_privilege
from knft.kernel.process import WorkerProcess
from knft.render.names import TABLE

log = logging.getLogger("knft")


def cleanup(output: Output, *, wait_for_lock: bool = False, force: bool = False, dry_run: bool = False) -> None:
    """Remove the tables of both families, and print which of them existed; raise KernelError after a failure.

    With ``dry_run``, remove nothing, and print what would be removed, also while another knft process runs.

    Otherwise, if another knft process runs in this network namespace, raise InstanceLockedError; wait for its exit
    first if ``wait_for_lock`` is set, or remove the tables nevertheless if ``force`` is set.
    """
    require_privilege()
    try:
        lock: AbstractContextManager[object] = take_instance_lock(wait=wait_for_lock and not force)
    except InstanceLockedError as error:
        if dry_run:
            _remove_tables(output, dry_run=True)
            output.print(f"{error}; stop it before the cleanup, because it would create the tables again")
            return
        if not force:
            msg = (
                f"{error}; stop it first, because it would create the tables again (`knft cleanup --force` removes "
                "them nevertheless)"
            )
            raise InstanceLockedError(msg) from error
        log.warning("%s; it will create the tables again", error)
        lock = nullcontext()
    with lock:
        _remove_tables(output, dry_run=dry_run)


def _remove_tables(output: Output, *, dry_run: bool) -> None:
    """Remove the table of each family; raise KernelError with a line for each that could not be removed."""
    errors = []
    with WorkerProcess() as library:
        for family in Family:
            try:
                remove_table(library, family, TABLE, output, dry_run=dry_run)
            except KernelError as error:
                verb = "list" if dry_run else "remove"
                errors.append(f"cannot {verb} table {family.nft} {TABLE}: {error}")
    if errors:
        raise KernelError("\n".join(errors))
