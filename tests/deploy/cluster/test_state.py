from pathlib import Path

import pytest

from deploy.cluster.cluster import Cluster
from deploy.cluster.plan import make_plan
from deploy.cluster.state import State, Tools, default_folder
from deploy.programs.errors import SetupError

_TOOLS = Tools("/cache/programs", "v1.36.3", "/cache/packages", "/cache/packages/lib")


def test_state_is_outside_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/states")
    assert default_folder() == Path("/states/knft/cluster")


def test_plan_and_tools_are_read_again(tmp_path: Path) -> None:
    state, plan = State(tmp_path / "state"), make_plan(2)
    assert state.read_tools() is None
    state.create(plan, _TOOLS)
    assert State(tmp_path / "state").read_plan() == plan
    assert Cluster(state).programs.path("kubectl") == "/cache/programs/kubectl"
    state.remove()
    assert not state.exists


def test_second_cluster_is_refused(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    state.check_absent()
    state.create(make_plan(), _TOOLS)
    with pytest.raises(SetupError, match=r"a cluster exists in .*state"):
        state.check_absent()


def test_second_process_is_refused(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    with (
        state.locked(),
        pytest.raises(SetupError, match="another process is starting or removing a cluster"),
        State(tmp_path / "state").locked(),
    ):
        pytest.fail("it is locked")
    with state.locked():
        pass


def test_missing_cluster_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no cluster exists"):
        Cluster(State(tmp_path / "state")).plan  # noqa: B018 - a property


def test_cgroups_of_two_clusters_have_different_names(tmp_path: Path) -> None:
    assert State(tmp_path / "one").cgroup_prefix != State(tmp_path / "two").cgroup_prefix
