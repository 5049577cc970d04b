"""``knft render``: its output is deterministic and loadable, and it does not read or change the machine."""

import json
import os
import random
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cluster_strategies import NAMES, endpoint_slices, nodes, services
from tests.support.kernel_harness import check_schema
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.nft_library_version import CAN_OWN_TABLES

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
DOCS = EXAMPLES.parent / "docs"
FLAGS = ("--node", "node-1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48", "--service-cidr", "10.96.0.0/16")


def run_render(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``knft render``."""
    return subprocess.run([*KNFT, "render", *arguments], capture_output=True, text=True, check=False, input=stdin)


def rendered_output(*arguments: str, stdin: str | None = None) -> str:
    """Return the output of ``knft render``, which must succeed."""
    done = run_render(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _with_load_balancing(folder: Path, value: str) -> Path:
    """Write the examples, with this annotation at each Service if it is not empty; return their folder."""
    for path in EXAMPLES.glob("*.yaml"):
        objects = list(yaml.safe_load_all(path.read_text()))
        for item in objects:
            if item["kind"] == "Service" and value:
                item["metadata"].setdefault("annotations", {})["knft.dev/load-balancing"] = value
        (folder / path.name).write_text(yaml.safe_dump_all(objects))
    return folder


@pytest.mark.kernel
@pytest.mark.parametrize("load_balancing", ["", "maglev", "source-hash"])
def test_first_sync_changes_nothing_if_rendered_text_is_loaded(tmp_path: Path, load_balancing: str) -> None:
    """``knft render | nft -f -`` makes the table of a first sync, without unused pools."""
    manifests = str(_with_load_balancing(tmp_path, load_balancing))
    namespace = Namespace.create("render")
    text = rendered_output("-f", manifests, *FLAGS)
    if CAN_OWN_TABLES:
        # knft adopts a persistent table whose owner has exited; it would replace a table that never had an owner.
        text = text.replace(" knft {\n", " knft {\n\tflags owner,persist\n")
    namespace.run(["nft", "-f", "-"], stdin=text)
    done = namespace.run([*KNFT, "run", "--once", "--manifests", manifests, *FLAGS])
    assert done.stderr.count(": 0 elements added, 0 removed, 0 chains written") == 2
    namespace.close()


def _loading_commands(text: str) -> tuple[str, str]:
    """Return the commands of a text that load the declarations and the JSON of a transaction."""
    declare, fill = (line.strip() for line in text.splitlines() if line.strip().startswith("knft render -f PATH "))
    return declare, fill


def _lines(listing: str) -> list[str]:
    """Return the lines of a listing, without blank lines and the flag that shows an earlier owner."""
    return [line for line in listing.splitlines() if line and line != "\tflags persist"]


@pytest.mark.kernel
@pytest.mark.parametrize("load_balancing", ["", "source-hash"])
def test_declarations_and_json_make_the_table_of_a_first_sync(tmp_path: Path, load_balancing: str) -> None:
    """The two commands in ``--help`` and in the documentation load them."""
    manifests = str(_with_load_balancing(tmp_path, load_balancing))
    namespace = Namespace.create("render")
    declare, fill = _loading_commands(run_render("--help").stdout)
    assert (declare, fill) == _loading_commands((DOCS / "getting-started.md").read_text())
    for command in (declare, fill, fill.replace("ipv4", "ipv6")):
        arguments = command.removeprefix("knft render -f PATH --node NAME ")
        rendering = shlex.join((*KNFT, "render", "-f", manifests, *FLAGS))
        namespace.run(["bash", "-o", "pipefail", "-c", f"{rendering} {arguments}"])
    loaded = namespace.run(["nft", "list", "ruleset"]).stdout
    assert ("jhash" in loaded) == bool(load_balancing)
    namespace.run([*KNFT, "cleanup"])
    namespace.run([*KNFT, "run", "--once", "--manifests", manifests, *FLAGS])
    assert _lines(loaded) == _lines(namespace.run(["nft", "list", "ruleset"]).stdout)
    namespace.close()


@pytest.mark.kernel
def test_nft_refuses_the_json_of_maglev(tmp_path: Path) -> None:
    """docs/design/consistent-hashing.md#json: knft itself sends these chains as text."""
    manifests = str(_with_load_balancing(tmp_path, "maglev"))
    declare, fill = (
        shlex.join((*KNFT, "render", "-f", manifests, *FLAGS)) + command.partition("--node NAME")[2]
        for command in _loading_commands(run_render("--help").stdout)
    )
    with closing(Namespace.create("render")) as namespace:
        namespace.run(["sh", "-c", declare])
        done = namespace.run(["sh", "-c", fill], check=False)
    assert done.returncode != 0
    assert "Expression type concat not allowed in context" in done.stderr


def test_output_does_not_depend_on_the_hash_seed() -> None:
    """Each process iterates over its sets in another order."""
    outputs = {
        subprocess.run(
            [*KNFT, "render", "-f", str(EXAMPLES), *FLAGS, "-o", "json"],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(1, 6)
    }
    assert len(outputs) == 1


def test_text_output_omits_unused_pools() -> None:
    text = rendered_output("-f", str(EXAMPLES), *FLAGS)
    assert text.count("chain pool-tcp-") == 2 * 2
    assert "chain pool-tcp-3 {" in text
    assert '10.96.0.10 . tcp . 80 comment "shop/frontend:http" : goto pool-tcp-3' in text


def test_family_flag_prints_only_that_family() -> None:
    text = rendered_output("-f", str(EXAMPLES), *FLAGS, "--family", "ipv6")
    assert text.startswith("table ip6 knft {")
    assert "table ip knft" not in text


def test_standard_input_accepts_lists_in_yaml_and_json() -> None:
    """A ``List``, as kubectl prints it, gives the same output as separate documents."""
    documents = [item for path in sorted(EXAMPLES.glob("*.yaml")) for item in yaml.safe_load_all(path.read_text())]
    as_list = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": documents})
    as_json = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    expected = rendered_output("-f", str(EXAMPLES), *FLAGS)
    assert expected == rendered_output("-f", "-", *FLAGS, stdin=as_list)
    assert expected == rendered_output("-f", "-", *FLAGS, stdin=as_json)


def test_node_ip_flag_sets_addresses_if_there_is_no_node_object() -> None:
    text = rendered_output("-f", str(EXAMPLES / "shop.yaml"), *FLAGS, "--node-ip", "198.51.100.7,2001:db8::7")
    assert "198.51.100.7" in text
    assert "2001:db8::7" in text


def test_render_does_not_load_kernel_libraries() -> None:
    """It imports neither libnftables nor netlink."""
    code = (
        "import sys; sys.argv = ['knft', 'render', '-f', sys.argv[1], '--node', 'node-1']\n"
        "from knft.cli.commands import cli\n"
        "cli(standalone_mode=False)\n"
        "sys.exit(', '.join({'nftables', 'pyroute2', 'watchfiles'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(EXAMPLES)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("bit", [0, 14, 31])
def test_every_transaction_matches_the_schema(bit: int) -> None:
    for flags in ([], ["--masquerade-all"], ["--nodeport-addresses", "all"]):
        text = rendered_output("-f", str(EXAMPLES), *FLAGS, "-o", "json", "--masquerade-bit", str(bit), *flags)
        for line in text.splitlines():
            check_schema(line.encode())


CLUSTER = st.tuples(
    nodes(),
    st.lists(st.sampled_from(NAMES), unique=True).flatmap(lambda names: st.tuples(*(services(name) for name in names))),
    st.lists(st.integers(1, 4), unique=True).flatmap(
        lambda numbers: st.tuples(*(endpoint_slices(f"slice-{number}") for number in numbers))
    ),
).map(lambda parts: [parts[0], *parts[1], *parts[2]])


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(objects=CLUSTER, rng=st.randoms(use_true_random=False))
def test_ruleset_does_not_depend_on_order_or_files_of_objects(
    tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, Any]], rng: random.Random
) -> None:
    """The objects are shuffled, some are written twice, and they are split over files of JSON and YAML."""
    whole, split = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("split")
    (whole / "all.yaml").write_text(yaml.safe_dump_all(objects))
    shuffled = [*objects, *rng.sample(objects, k=len(objects) // 2)]
    rng.shuffle(shuffled)
    for item in shuffled:
        with (split / f"{rng.randint(1, 3)}.yaml").open("a") as file:
            file.write(f"---\n{json.dumps(item) + chr(10) if rng.random() < 0.5 else yaml.safe_dump(item)}")

    assert _render_in_process(whole, "text") == _render_in_process(split, "text")
    assert _render_in_process(whole, "json") == _render_in_process(split, "json")


def _render_in_process(folder: Path, output: str) -> str:
    from click.testing import CliRunner

    from knft.cli.commands import cli

    done = CliRunner().invoke(cli, ["render", "-f", str(folder), *FLAGS, "-o", output])
    assert done.exit_code == 0, done.output
    return done.stdout
