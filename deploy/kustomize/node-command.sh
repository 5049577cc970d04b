#!/bin/sh
# Run a program of knft's image on a node, in the node's network with CAP_NET_ADMIN and CAP_NET_RAW. Prints its output
# and exits with its status; with -i, the program reads this script's standard input. Exits with 2 if there is no such
# node. The pod is deleted at the end, also after a signal.
# Usage: sh node-command.sh [-i] NODE PROGRAM [ARGUMENT ...]
set -eu
image=${KNFT_IMAGE:-knft.dev/knft:0.1.0}
# Several commands can run at once.
name=knft-command-$$
input=
if [ "${1:-}" = -i ]; then
    input=yes
    shift
fi
if [ $# -lt 2 ]; then
    echo "usage: sh $0 [-i] NODE PROGRAM [ARGUMENT ...]" >&2
    exit 2
fi
node=$1
shift

system() { kubectl --namespace=kube-system "$@"; }

run() { # FLAG ... -- PROGRAM [ARGUMENT ...]
    system run "$name" --quiet --restart=Never --image="$image" --override-type=strategic \
        --overrides="$(sed "s/NODE/$node/; s/NAME/$name/" "$(dirname "$0")/node-command.json")" --command "$@"
}

kubectl get node "$node" --output=name >/dev/null || exit 2
trap 'system delete pod "$name" --now --ignore-not-found >/dev/null' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if [ "$input" ]; then
    run --stdin -- "$@"
    exit
fi
run -- "$@" >/dev/null
# Not "kubectl run --attach": it begins after the program has, and then misses the first lines, or prints lines twice.
polls=0
until
    status=$(system get pod "$name" --output=jsonpath='{.status.containerStatuses[0].state.terminated.exitCode}') ||
        exit 1
    [ "$status" ]
do
    polls=$((polls + 1))
    if [ "$polls" -eq "120" ]; then
        system get pod "$name" >&2
        echo "$0: the program has not ended: look at the pod $name, and delete it" >&2
        trap - EXIT
        exit 1
    fi
    sleep 0.5
done
system logs "$name"
exit "$status"
