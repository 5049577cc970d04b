"""``knft run`` as a process, for tests: in the namespace of its API server."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.apiserver.server import ApiServer
from tests.packets.node import KNFT
from tests.support.lab.logged_process import HANG, LoggedProcess
from tests.support.lab.namespace import Namespace

NODE = "node-1"
# nf_conntrack_max is the whole machine's.
LEAVE_ALONE = ("--conntrack-max-per-core=0", "--conntrack-tcp-timeout-close-wait=0s")


class Started(LoggedProcess):
    """One ``knft run`` in the namespace that its API server is in."""

    def __init__(self, namespace: Namespace, server: ApiServer, folder: Path, *flags: str) -> None:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(kubeconfig_of(server.url)))
        self.namespace = namespace
        command = [*KNFT, "run", f"--kubeconfig={kubeconfig}", f"--hostname-override={NODE}", *LEAVE_ALONE, *flags]
        super().__init__(namespace, command, folder / "log")
        namespace.at_close(self.kill)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def until_in_force(self) -> None:
        self.until(lambda: self.said().count("full sync") == 2)

    def holds(self, words: str) -> bool:
        return words in self.namespace.run(["nft", "list", "table", "ip", "knft"], check=False).stdout

    def get(self, port: int, path: str) -> tuple[int, str]:
        with self.namespace.entered():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANG) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

    def ends(self) -> int:
        return self.process.wait(HANG)


def kubeconfig_of(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "knft"}}],
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "knft", "user": {"token": "a-token-of-the-tests"}}],
    }
