# Process 1 of the guest after init.sh: run $COMMAND in $CHECKOUT, write the report for report.py to the second serial
# port, and power off.
# The tests need no plugin of pytest, and importing plugins takes 10 s under qemu.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
# Tests that change the machine run only here.
export KNFT_GUEST="$GUEST"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
# The host's terminal adds carriage returns itself.
stty -F /dev/console -onlcr
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
busybox ip link set lo up

# Without this module bridges do not call netfilter. The kernel loads all other modules on demand.
modprobe br_netfilter

# Not the host's directory, in which pytest deletes old files.
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
