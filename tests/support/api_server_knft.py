"""``knft run`` as a process, in the network namespace of its API server."""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.fake_api.server import FakeApiServer
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.logged_process import TIMEOUT, LoggedProcess

NODE = "node-1"
# nf_conntrack_max applies to the whole host, so tests do not change it.
KEEP_HOST_SYSCTLS = ("--conntrack-max-per-core=0", "--conntrack-tcp-timeout-close-wait=0s")


class ApiServerKnft(LoggedProcess):
    """One ``knft run``, in the network namespace of its API server."""

    def __init__(
        self,
        namespace: Namespace,
        server: FakeApiServer,
        folder: Path,
        *flags: str,
        before: Sequence[str] = (),
        command: Sequence[str] = KNFT,
        in_pod: bool = False,
    ) -> None:
        """Start ``command``, which runs knft; ``before`` is put in front of it.

        ``in_pod`` gives no kubeconfig: ``before`` provides the ServiceAccount of a pod.
        """
        self.namespace = namespace
        connection = [] if in_pod else _kubeconfig_flags(server, folder)
        command = [*before, *command, "run", *connection, f"--hostname-override={NODE}", *KEEP_HOST_SYSCTLS, *flags]
        super().__init__(namespace, command, folder / "log")
        namespace.call_at_close(self.kill)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait_until_programmed(self) -> None:
        self.wait_until(lambda: self.log_text().count("full sync") == 2)

    def table_contains(self, words: str) -> bool:
        return words in self.namespace.run(["nft", "list", "table", "ip", "knft"], check=False).stdout

    def http_get(self, port: int, path: str) -> tuple[int, str]:
        with self.namespace.entered():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

    def wait_exit(self) -> int:
        return self.process.wait(TIMEOUT)


def _kubeconfig_flags(server: FakeApiServer, folder: Path) -> list[str]:
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(kubeconfig_for(server.url)))
    return [f"--kubeconfig={kubeconfig}", "--insecure-send-credentials-without-tls"]


def kubeconfig_for(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "knft"}}],
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "knft", "user": {"token": "a-token-of-the-tests"}}],
    }
