# The guest's process 1 once its root file system is there: run $COMMAND in $CHECKOUT, write what came of it to the
# second serial port, for verdict.py, and switch the machine off.
# Of pytest's plugins none is used here, and they take 10 s to import.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
# The host's terminal, or its log, ends lines by itself.
stty -F /dev/console -onlcr
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
busybox ip link set lo up

# Bridges ask netfilter only where this module is loaded, and nothing loads it by itself; the rest does.
modprobe br_netfilter

# Not the host's own, which pytest would tidy up.
TMPDIR=$(mktemp -d)
export TMPDIR
report=$TMPDIR/report.xml
cd "$CHECKOUT" || exit
echo "test-vm: kernel $(uname -r), in the guest after $(cut -d' ' -f1 /proc/uptime) s"
eval "$COMMAND --junit-xml=$report"
status=$?

stty -F /dev/ttyS1 raw
{
    echo "$(uname -r) $status"
    cat "$report"
} >/dev/ttyS1
exec busybox poweroff -f
