# The guest's process 1 once its root file system is there: run $COMMAND in $CHECKOUT, write what came of it to the
# second serial port, for verdict.py, and switch the machine off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ip link set lo up 2>/dev/null || busybox ip link set lo up

# Bridges ask netfilter only where this module is loaded, and nothing loads it by itself.
modprobe br_netfilter

report=/tmp/report.xml
cd "$CHECKOUT" || exit
echo "test-vm: in the guest, kernel $(uname -r), after $(cut -d' ' -f1 /proc/uptime) s"
eval "$COMMAND --junit-xml=$report"
status=$?
echo "test-vm: the guest switches itself off after $(cut -d' ' -f1 /proc/uptime) s"

stty -F /dev/ttyS1 raw
{
    echo "$(uname -r) $status"
    cat "$report"
} >/dev/ttyS1
exec busybox poweroff -f
