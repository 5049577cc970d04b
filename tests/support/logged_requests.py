"""``python -m tests.support.logged_requests FILE ARGUMENTS``: runs knft, and writes requests to libnftables to FILE."""

import json
import sys
from pathlib import Path

from knft.kernel import worker_messages
from knft.kernel.worker_messages import Commands, ElementDump


def command(file: Path) -> tuple[str, ...]:
    """Return the command that runs knft and writes the file."""
    return sys.executable, "-m", __name__, str(file)


def read(file: Path) -> list[str]:
    """Return the requests: commands, or the sets whose elements are read."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def main() -> None:
    """Run knft; the worker process gets the requests as without this."""
    file = Path(sys.argv.pop(1)).open("w", buffering=1)  # noqa: SIM115 - open until the process ends
    encode = worker_messages.encode_request

    def logged(request: Commands | ElementDump) -> bytes:
        text = request.text if isinstance(request, Commands) else f"elements {request.table} {' '.join(request.names)}"
        print(json.dumps(text), file=file)
        return encode(request)

    # Before knft.kernel.process imports it.
    worker_messages.encode_request = logged
    from knft.cli.main import main as knft

    knft()


if __name__ == "__main__":
    main()
