#!/bin/sh
# Make a writable view of a root directory, print "ready", and keep it until standard input ends.
# Usage, in mount and PID namespaces of its own: sh enter.sh ROOT SCRATCH [ro|rw SOURCE TARGET]...
# ROOT is not changed: writes go to an overlay in memory. SCRATCH is an empty directory. Each SOURCE, a file or a
# directory of the host, is mounted at TARGET.
set -eu
root=$1 scratch=$2
shift 2

mount -t tmpfs -o mode=755 layers "$scratch"
mkdir "$scratch/root" "$scratch/upper" "$scratch/work" "$scratch/new"
# A bind mount first, because a path in overlay options may contain no comma and no colon.
mount --bind "$root" "$scratch/root"
cd "$scratch"
mount -t overlay -o lowerdir=root,upperdir=upper,workdir=work overlay new
cd new
mkdir -p old
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp

while [ $# -gt 0 ]; do
    if [ -d "$2" ]; then mkdir -p ".$3"; else mkdir -p ".${3%/*}" && touch ".$3"; fi
    mount --bind "$2" ".$3"
    mount -o "remount,bind,$1" ".$3"
    shift 3
done

# Not chroot: inside it the kernel refuses user namespaces.
pivot_root . old
umount -l /old
rmdir /old
echo ready
exec cat
