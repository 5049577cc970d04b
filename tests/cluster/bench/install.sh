#!/bin/sh
# Install iperf3, which measures established connections, as root; tests/install.sh installs the packages of the tests.
set -eu

command -v iperf3 >/dev/null && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "bench: missing package; install it as root: iperf3" >&2
    exit 1
fi
echo "bench: installing iperf3"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iperf3 >/dev/null
