"""One writer: ``python -m tests.cluster.churn.writer PLAN`` updates its slices at a pace.

It creates its slices, prints "ready", reads the start time, and prints the result at the end.
"""

import http.client
import itertools
import ssl
import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from tests.cluster.churn.numbered_endpoints import slice_of
from tests.support.processes import die_with_parent

_PATH = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


class WriterPlan(Struct, frozen=True):
    """The work of one writer: ``rate`` updates per second, each of ``each`` endpoints, the first after ``delay``."""

    ca: str
    certificate: str
    key: str
    slices: list[int]
    endpoints: int
    first: int
    rate: float
    each: int
    seconds: float
    delay: float = 0.0


class WriterResult(Struct, frozen=True):
    """Each update (first number, count, time sent, time answered), and the last addresses of each slice."""

    updates: list[tuple[int, int, float, float]]
    addresses: dict[int, list[int]]


def main() -> None:
    """Write as planned."""
    die_with_parent()
    plan = msgspec.json.decode(sys.argv[1], type=WriterPlan)
    connection = _connect(plan)
    numbers = itertools.count(plan.first)
    addresses = {index: deque(itertools.islice(numbers, plan.endpoints)) for index in plan.slices}
    for index, own in addresses.items():
        _send(connection, "POST", index, own, time.time())
    print("ready", flush=True)
    begin = float(sys.stdin.readline())
    updates = list(_updates(plan, begin, connection, numbers, addresses))
    sys.stdout.buffer.write(
        msgspec.json.encode(WriterResult(updates, {index: list(own) for index, own in addresses.items()}))
    )


def _updates(
    plan: WriterPlan,
    begin: float,
    connection: http.client.HTTPSConnection,
    numbers: Iterator[int],
    addresses: dict[int, deque[int]],
) -> Iterator[tuple[int, int, float, float]]:
    """Update one slice after the other; a late update is sent at once, and updates due after the end are skipped."""
    total = int(plan.seconds * plan.rate)
    for number, index in zip(range(total), itertools.cycle(plan.slices), strict=False):
        time.sleep(max(0.0, begin + plan.delay + number / plan.rate - time.time()))
        if (sent := time.time()) > begin + plan.seconds:
            return
        own, new = addresses[index], list(itertools.islice(numbers, plan.each))
        for item in new:
            own.popleft()
            own.append(item)
        _send(connection, "PUT", index, own, sent)
        yield new[0], len(new), sent, time.time()


def _connect(plan: WriterPlan) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=plan.ca)
    context.load_cert_chain(plan.certificate, plan.key)
    return http.client.HTTPSConnection("127.0.0.1", 6443, context=context, timeout=60)


def _send(connection: http.client.HTTPSConnection, method: str, index: int, numbers: deque[int], sent: float) -> None:
    # The EndpointSlice controller writes the time in this form.
    triggered = datetime.fromtimestamp(sent, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body = slice_of(index, list(numbers), triggered)
    path = f"{_PATH}/churn-{index}" if method == "PUT" else _PATH
    connection.request(method, path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body_read = answer.read()
    if answer.status not in {200, 201}:
        sys.exit(f"the API server answered {answer.status}: {body_read[:300]!r}")


if __name__ == "__main__":
    main()
