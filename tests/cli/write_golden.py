"""Writes the golden texts of commands, and JSON schemas: ``python -m tests.cli.write_golden``."""

import json

from knft.cli.history_text import Selection as HistorySelection
from knft.cli.history_text import format_history
from knft.cli.status_text import audit_conclusion, format_status
from knft.cli.top_text import Selection, format_top
from knft.cli.version import format_versions
from knft.control.messages import History
from tests.cli.example_status import CHANGE, FOUND, GOLDEN, HISTORY, LEFTOVERS, STATES, WIDTHS
from tests.cli.test_cleanup_report import DRY_RUNS, dry_run
from tests.cli.test_diff_watch import watched_change
from tests.cli.test_top import long_names
from tests.cli.test_version import VERSIONS
from tests.support.command_schemas import FORMS, schema_file
from tests.support.json_schema import schema_of

if __name__ == "__main__":
    for width, columns in WIDTHS.items():
        texts = {f"status-{state}": format_status(found, columns) for state, found in STATES.items()}
        texts["status-audited"] = format_status(FOUND, columns, leftovers=LEFTOVERS, audit=audit_conclusion(FOUND, 1.0))
        texts["history"] = format_history(HISTORY, HistorySelection(), columns)
        texts["history-endpoint"] = format_history(
            History((CHANGE,)), HistorySelection(endpoint="10.244.1.20"), columns
        )
        texts["top-service"] = format_top(long_names(), Selection("service"), columns)
        texts["top-frontend"] = format_top(long_names(), Selection("frontend"), columns)
        texts |= {f"version-{name}": format_versions(found, columns) for name, found in VERSIONS.items()}
        texts |= {name: dry_run(name, columns) for name in DRY_RUNS}
        texts["diff-watch"] = watched_change(columns)
        for name, text in texts.items():
            (GOLDEN / f"{name}-{width}.txt").write_text(text)
    for command, form in FORMS.items():
        schema_file(command).write_text(json.dumps(schema_of(form), indent=2, ensure_ascii=False) + "\n")
