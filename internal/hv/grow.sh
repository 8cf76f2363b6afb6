# Makes the root file system fill its disk: the partition first, when it is the
# last one and free space follows it, then the file system, while it is in use.
# Needs growpart, or sfdisk and partx, where the root is in a partition; and
# resize2fs, xfs_growfs or btrfs. Ends with 0 also when there is nothing to grow.
set -f
LC_ALL=C
export LC_ALL

give_up() {
  echo "The file system cannot be grown: $*." >&2
  exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# The last mount on / is the one in use. Fields: id parent major:minor root
# mountpoint options [optional fields] - type source options.
number='' type='' source=''
while read -r line; do
  # shellcheck disable=SC2086
  set -- $line
  [ "${5-}" = / ] || continue
  number=$3
  while [ $# -gt 0 ] && [ "$1" != - ]; do shift; done
  type=${2-} source=${3-}
done </proc/self/mountinfo

# File systems without a separate device number (btrfs) have the number 0:n.
case "$number" in
0:*) node=$(readlink -f "$source") && name=${node##*/} ;;
*) name=$(readlink -f "/sys/dev/block/$number") && name=${name##*/} ;;
esac
sys=/sys/class/block/$name
[ -n "$name" ] && [ -e "$sys" ] || give_up "the device of / ($source) was not found"
case "$name" in
dm-* | md*) give_up "/ is on $source (LVM, encryption or RAID), which has to be grown manually" ;;
esac
[ -b "/dev/$name" ] || give_up "device node /dev/$name not found"

# grow_partition enlarges partition $1 of disk $2 to the disk's end.
grow_partition() {
  if has growpart; then
    said=$(growpart "/dev/$2" "$1" 2>&1)
    case $?:$said in
    0:* | *NOCHANGE*) return ;;
    esac
    has sfdisk && has partx || give_up "growpart: $said"
  fi
  has sfdisk && has partx || give_up "the guest has neither growpart nor sfdisk and partx (Debian: cloud-guest-utils, or fdisk and util-linux)"
  if [ "$(sfdisk --dump "/dev/$2" | sed -n 's/^label: //p')" = gpt ]; then
    # The second copy of the table is at the old end of the disk.
    said=$(sfdisk --force --no-reread --relocate gpt-bak-std "/dev/$2" 2>&1) || give_up "sfdisk: $said"
  fi
  said=$(echo ', +' | sfdisk --force --no-reread --no-tell-kernel -N "$1" "/dev/$2" 2>&1) || give_up "sfdisk: $said"
  said=$(partx --update --nr "$1" "/dev/$2" 2>&1) || give_up "partx: $said"
}

if [ -e "$sys/partition" ]; then
  disk=$(readlink -f "$sys/..") && disk=${disk##*/}
  # In sectors of 512 bytes. Free space below 2 MiB is not used: a GPT ends the
  # disk, and partitions begin at multiples of 1 MiB.
  end=$(($(cat "$sys/start") + $(cat "$sys/size")))
  room=$(($(cat "/sys/class/block/$disk/size") - end))
  set +f
  for other in "/sys/class/block/$disk/$disk"*; do
    if [ -e "$other/start" ] && [ "$(cat "$other/start")" -ge "$end" ] && [ $room -gt 4096 ]; then
      give_up "partition ${other##*/} is behind the root partition $name; move it or grow / manually"
    fi
  done
  [ $room -le 4096 ] || grow_partition "$(cat "$sys/partition")" "$disk"
fi

case "$type" in
ext2 | ext3 | ext4)
  has resize2fs || give_up "the guest has no resize2fs (Debian: e2fsprogs)"
  said=$(resize2fs "/dev/$name" 2>&1) || give_up "resize2fs: $said"
  ;;
xfs)
  has xfs_growfs || give_up "the guest has no xfs_growfs (Debian: xfsprogs)"
  said=$(xfs_growfs / 2>&1) || give_up "xfs_growfs: $said"
  ;;
btrfs)
  has btrfs || give_up "the guest has no btrfs (Debian: btrfs-progs)"
  said=$(btrfs filesystem resize max / 2>&1) || give_up "btrfs: $said"
  ;;
*) give_up "/ is a $type file system; ext2-4, xfs and btrfs can be grown while they are in use" ;;
esac
