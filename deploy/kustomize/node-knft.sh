#!/bin/sh
# Run "knft preflight", "knft diff --live" or "knft trace" on a node, with the objects of the cluster and kube-proxy's
# configuration. Prints the output and exits with the status. With --all, runs it on all Linux nodes, prints the first
# line for each, the verdict, and exits with the highest status.
# Usage: sh node-knft.sh NODE|--all preflight|diff|trace [FLAG ...]
set -eu
usage() {
    echo "usage: sh $0 NODE|--all preflight|diff|trace [FLAG ...]" >&2
    exit 2
}
[ $# -ge 2 ] || usage
nodes=$1
command=$2
shift 2
case $command in
    preflight | trace) live= ;;
    diff) live=--live ;;
    *) usage ;;
esac

# node-command.json mounts the ConfigMap, which kubeadm writes, at this path.
config=--config=/var/lib/kube-proxy/config.conf
configmap=$(kubectl --namespace=kube-system get configmap kube-proxy --ignore-not-found \
    --output='jsonpath={.data.config\.conf}')
[ "$configmap" ] || config=
for flag in "$@"; do
    case $flag in
        --cluster-cidr* | --detect-local-mode*) config= ;; # flags instead of a configuration
    esac
done

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

run() { # NODE [FLAG ...]
    node=$1
    shift
    # For each node again: a change after the capture is a difference.
    kubectl get nodes,services,endpointslices,servicecidrs --all-namespaces --output=yaml >"$folder/objects.yaml" ||
        return
    # shellcheck disable=SC2086 # a flag, or none
    sh "$(dirname "$0")/node-command.sh" -i "$node" knft "$command" $live --filename=- --node="$node" $config "$@" \
        <"$folder/objects.yaml"
}

if [ "$nodes" != --all ]; then
    run "$nodes" "$@"
    exit
fi
names=$(kubectl get nodes --selector=kubernetes.io/os=linux --output='jsonpath={.items[*].metadata.name}')
if [ -z "$names" ]; then
    echo "$0: the cluster has no node with label kubernetes.io/os=linux" >&2
    exit 1
fi
highest=0
for name in $names; do
    status=0
    run "$name" "$@" >"$folder/output" || status=$?
    IFS= read -r verdict <"$folder/output" || verdict="no answer: exit status $status"
    echo "$name: $verdict"
    [ "$status" -le "$highest" ] || highest=$status
done
exit "$highest"
