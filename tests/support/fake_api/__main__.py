"""``python -m tests.support.fake_api``: the fake API server as a process, which can be paused and killed.

It prints its address; each line on its standard input is the name of a Service that it creates.
"""

import sys

from tests.support.fake_api.cluster import service
from tests.support.fake_api.server import FakeApiServer

if __name__ == "__main__":
    with FakeApiServer() as server:
        print(server.url, flush=True)
        for number, line in enumerate(sys.stdin, start=1):
            server.cluster.put("services", service(line.strip(), number))
