"""``deploy/kustomize/base/rbac.yaml`` has exactly the rights that knft needs."""

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Api
from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.fault_test_node import FLAGS
from tests.cluster.service_account import ServiceAccount, manifest_objects
from tests.support.knft_command import knft
from tests.support.lab.namespace import Namespace
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

(ROLE,) = (item for item in manifest_objects() if item["kind"] == "ClusterRole")
RULES: list[dict[str, Any]] = ROLE["rules"]
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
OTHER_RESOURCES = (
    ("", "pods"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "endpoints"),
    ("", "events"),
    ("", "nodes/status"),
)
RESOURCES = sorted({(group, name) for rule in RULES for group in rule["apiGroups"] for name in rule["resources"]})
ALLOWED = {
    (group, name, verb)
    for rule in RULES
    for group, name, verb in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
}

pytestmark = pytest.mark.kernel


def test_service_account_has_exactly_the_rights_of_the_role(service_account: ServiceAccount) -> None:
    """A SelfSubjectAccessReview checks each verb, in all namespaces."""
    user = service_account.client()
    table = [(*resource, verb) for resource in [*RESOURCES, *OTHER_RESOURCES] for verb in VERBS]
    assert {place for place in table if _is_allowed(user, *place)} == ALLOWED


def test_other_rights_are_those_of_every_account(cluster: Cluster, service_account: ServiceAccount) -> None:
    """An account without any role has the other rights of the account, too."""
    other_account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "nobody", "namespace": "default"},
    }
    cluster.api.ensure(other_account)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    path = "/api/v1/namespaces/default/serviceaccounts/nobody/token"
    token = cluster.api.call("POST", path, request)["status"]["token"]
    own, others = (_rights(user) for user in (service_account.client(), cluster.token_client(token)))
    assert others <= own
    assert own - others == ALLOWED


@pytest.fixture(scope="module")
def old_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server without streaming lists, so that knft lists in pages."""
    namespace = Namespace.create("old")
    folder = tmp_path_factory.mktemp("old")
    with closing(namespace), Cluster(namespace, folder, "--feature-gates=WatchList=false") as cluster:
        yield cluster


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["resources"][0])
def test_each_rule_is_needed(
    cluster: Cluster, service_account: ServiceAccount, tmp_path: Path, rule: dict[str, Any]
) -> None:
    """Without the rule knft logs what is forbidden, retries, and recovers when the rule is back."""
    _expect_forbidden_and_recovery(
        cluster, service_account, tmp_path, rule["resources"][0], [other for other in RULES if other != rule]
    )


@pytest.mark.parametrize(
    ("rule", "verb"),
    [pytest.param(rule, verb, id=f"{verb} {rule['resources'][0]}") for rule in RULES for verb in rule["verbs"]],
)
def test_each_verb_is_needed(old_cluster: Cluster, tmp_path: Path, rule: dict[str, Any], verb: str) -> None:
    """The same for each verb, with an API server without streaming lists: a streaming list needs only watch."""
    left = {**rule, "verbs": [other for other in rule["verbs"] if other != verb]}
    rules = [left if other == rule else other for other in RULES if other != rule or left["verbs"]]
    _expect_forbidden_and_recovery(old_cluster, ServiceAccount(old_cluster), tmp_path, rule["resources"][0], rules)


def _expect_forbidden_and_recovery(
    cluster: Cluster, service_account: ServiceAccount, folder: Path, resource: str, rules: list[dict[str, Any]]
) -> None:
    daemon = ClusterKnft(cluster, service_account, folder, *FLAGS)
    cluster.api.ensure({**ROLE, "rules": rules})
    Applier(cluster).apply(Scenario("", [], ()).manifests())
    try:
        daemon.start()
        wait_until(lambda: _logs_forbidden(daemon, resource), f"knft does not log {resource}", daemon.check)
        cluster.api.ensure(ROLE)
        wait_until(lambda: "full sync" in daemon.log.read_text(), "knft does not recover", daemon.check)
    finally:
        daemon.close()
        cluster.api.ensure(ROLE)
        knft(cluster.namespace, "cleanup")


def _logs_forbidden(daemon: ClusterKnft, resource: str) -> bool:
    lines = daemon.log.read_text().splitlines()
    return any(resource in line and "forbidden" in line for line in lines)


def _is_allowed(user: Api, group: str, resource: str, verb: str) -> bool:
    name, _, part = resource.partition("/")
    attributes = {"group": group, "resource": name, "subresource": part, "verb": verb}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = user.call("POST", path, {**review, "spec": {"resourceAttributes": attributes}})
    return bool(answer["status"]["allowed"])


def _rights(user: Api) -> set[tuple[str, str, str]]:
    """Return the rights that the API server reports: group, resource and verb, or "", "" and the verb with a path."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = user.call("POST", path, {**review, "spec": {"namespace": "default"}})["status"]
    assert not status["incomplete"]
    return {
        (group, name, verb)
        for rule in status["resourceRules"]
        for group, name, verb in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
    } | {
        ("", "", verb + path)
        for rule in status["nonResourceRules"]
        for verb in rule["verbs"]
        for path in rule["nonResourceURLs"]
    }
