"""The tests that send packets for the sentences of ``knft explain`` that no question of ``explained_cases`` has."""

import ast
from pathlib import Path

from knft.explain.sentences import Sentence

S = Sentence
ROOT = Path(__file__).parents[2]
OTHER_TESTS = {
    "tests/packets/test_explanations.py::test_explanations_from_the_kernel_alone_have_the_same_outcomes": (
        S.KERNEL_NO_SERVICE,
        S.KERNEL_NO_SUCH_PORT,
        S.KERNEL_UNALLOCATED,
        S.KERNEL_NOT_A_FRONTEND,
        S.KERNEL_NODE_ADDRESS,
        S.KERNEL_NO_NODE_PORT,
        S.KERNEL_SERVED,
        S.KERNEL_UNSERVED,
    ),
    "tests/packets/test_explanations.py::test_rules_of_the_kernel_are_compared_with_those_of_the_objects": (
        S.KERNEL_EQUAL,
        S.KERNEL_DIFFERENT,
        S.KERNEL_EXTRA,
        S.KERNEL_HAS_NONE,
    ),
    "tests/packets/test_explanations.py::test_kernel_without_a_table_of_a_family": (S.KERNEL_NO_TABLE,),
    "tests/packets/test_explanations.py::test_pinned_client_keeps_its_endpoint": (
        S.PINNED,
        S.NOT_PINNED,
        S.NO_AFFINITY,
        S.NO_FRONTEND_OF_FAMILY,
    ),
    "tests/packets/test_explanations.py::test_service_has_no_rules_in_a_family_without_a_cluster_ip": (
        S.NO_CLUSTER_IP_IN_FAMILY,
    ),
    "tests/packets/test_explanations.py::test_pods_of_other_nodes_get_no_reply_from_endpoints_on_other_nodes": (
        S.PODS_OF_THIS_NODE,
    ),
    "tests/packets/test_explanations.py::test_node_ports_that_no_address_accepts": (S.NO_NODE_PORT_ADDRESS,),
    "tests/packets/test_explanations.py::test_service_without_ports_is_dropped": (S.NO_PORTS, S.UNSERVED_DROPPED),
    "tests/packets/test_explained_syncs.py::test_changes_wait_for_a_sync": (S.SYNC_PENDING,),
    "tests/packets/test_explained_syncs.py::test_no_sync_has_succeeded_since_knft_started": (S.NEVER_SYNCED,),
    "tests/packets/test_explained_syncs.py::test_sync_failed": (S.SYNC_FAILED,),
    "tests/packets/test_explained_syncs.py::test_service_port_is_quarantined": (S.QUARANTINED,),
    "tests/packets/test_explained_syncs.py::test_table_is_left_to_an_older_version": (S.TABLE_LEFT,),
    "tests/packets/test_explained_syncs.py::test_another_program_changed_the_table": (S.TABLE_CHANGED,),
    "tests/packets/test_explained_syncs.py::test_rules_of_the_kernel_cannot_be_read": (S.KERNEL_UNREAD,),
    "tests/packets/test_explained_syncs.py::test_service_of_another_proxy_is_unknown_to_the_running_knft": (
        S.UNKNOWN_SERVICE,
    ),
    "tests/packets/test_invalid_packets.py::test_connection_survives_a_packet_outside_the_window_that_is_dropped": (
        S.INVALID_DROPPED,
    ),
    "tests/packets/test_draining.py::test_explanation_says_whether_connections_are_reset": (S.RESETS_CONNECTIONS,),
    "tests/packets/test_loopback_nodeports.py::test_commands_tell_what_a_client_gets": (
        S.SERVED_ON_LOOPBACK,
        S.NODE_PORT_ON_LOOPBACK,
    ),
    "tests/packets/test_loopback_nodeports.py::test_commands_tell_that_udp_is_rejected": (
        S.NODE_PORT_REJECTED_ON_LOOPBACK,
    ),
    "tests/serve/test_service_health.py::test_explanation_of_a_health_check_port_says_that_knft_answers": (
        S.HEALTH_CHECK_PORT,
    ),
}
"""The sentences by test. ``test_explanations.py`` checks that the test names them in its source."""


def named_sentences(test: str) -> set[Sentence]:
    """Return the sentences that a test function names as ``Sentence.NAME`` or ``S.NAME``; it must exist."""
    path, name = test.split("::")
    statements = ast.parse((ROOT / path).read_text()).body
    (function,) = (each for each in statements if isinstance(each, ast.FunctionDef) and each.name == name)
    return {
        Sentence[node.attr]
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"S", "Sentence"}
    }
