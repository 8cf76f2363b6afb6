#!/bin/bash
# Builds the guest of bench-distribution: Debian with systemd, a SSH server, Python, git and the guest agent, on a disk
# of 8 GB with 3.2 GB of noise in files that lie between those of the system. Needs root, debootstrap and the internet.
#
#   test/bench/distribution/guest.sh OUT.raw
#
# The disk is kept in ${XDG_CACHE_HOME:-~/.cache}/buildyard/bench-guest; OUT.raw becomes a link to it. The file next to it
# that ends in .key is the key with which root logs in.
set -euo pipefail
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive
umask 022

out=${1:?usage: guest.sh OUT.raw}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/buildyard/bench-guest
suite=bookworm
disk_mb=8192

if [ "$(id -u)" != 0 ]; then
  echo "guest.sh: needs root, since debootstrap configures the packages in a chroot" >&2
  exit 1
fi
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
disk=$cache/$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-16).raw
if [ -e "$disk" ]; then
  ln -sfn "$disk" "$out"
  exit 0
fi
find "$cache" -maxdepth 1 -name '*.raw*' -delete # of older recipes
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The root directory. No service starts in the chroot.
root=$work/root
packages=systemd-sysv,udev,dbus,kmod,iproute2,ifupdown,isc-dhcp-client,openssh-server,python3-minimal,git
packages+=,qemu-guest-agent,initramfs-tools,linux-image-cloud-amd64,grub-pc-bin,grub-common
debootstrap --variant=minbase --include="$packages" "$suite" "$root" >&2
rm -f "$root"/var/cache/apt/archives/*.deb
echo guest >"$root/etc/hostname"
printf '/dev/vda1 / ext4 defaults,noatime 0 1\n' >"$root/etc/fstab"
printf 'auto eth0\niface eth0 inet dhcp\n' >"$root/etc/network/interfaces"
ssh-keygen -q -t ed25519 -N '' -C bench -f "$work/key"
mkdir -p -m 700 "$root/root/.ssh"
install -m 600 "$work/key.pub" "$root/root/.ssh/authorized_keys"
rm -f "$root/etc/machine-id"
: >"$root/etc/machine-id"

# Noise: 110 files of 16 MiB and 1,500 of 1 MiB, in directories that mke2fs writes between those of the system.
noise() { # FILE MIB
  head -c "$2M" /dev/urandom >"$1"
}
for i in $(seq 110); do
  dir=$root/$(printf 'opt\nsrv\nusr/lib/data\nvar/lib/data\nusr/share/data\n' | sed -n "$((i % 5 + 1))p")
  mkdir -p "$dir"
  noise "$dir/large$i" 16
done
mapfile -t dirs < <(cd "$root/usr" && find . -type d | sort | awk 'NR % 3 == 0' | head -500)
for i in $(seq 1500); do
  noise "$root/usr/${dirs[$((i % ${#dirs[@]}))]}/noise$i" 1
done

# The disk: GRUB in front of the partition.
mkdir -p "$root/boot/grub"
cat >"$work/grub.cfg" <<'C'
set root=(hd0,msdos1)
linux /vmlinuz root=/dev/vda1 console=ttyS0 quiet panic=-1 random.trust_cpu=on tsc=reliable no_timer_check mitigations=off net.ifnames=0 audit=0 apparmor=0
initrd /initrd.img
boot
C
grub=$root/usr/lib/grub/i386-pc
cp "$work/grub.cfg" "$root/tmp/grub.cfg"
chroot "$root" grub-mkimage -O i386-pc -p '(hd0,msdos1)/boot/grub' -c /tmp/grub.cfg -o /tmp/core.img \
  biosdisk part_msdos ext2 linux normal
mv "$root/tmp/core.img" "$work/core.img"
rm -f "$root/tmp/grub.cfg"
[ "$(stat -c %s "$work/core.img")" -lt $((2047 * 512)) ]
part=$work/part.raw
truncate -s $((disk_mb - 1))M "$part"
mke2fs -q -t ext4 -F -d "$root" -L root -m 0 -E lazy_itable_init=1,root_owner=0:0 "$part"
truncate -s ${disk_mb}M "$work/disk.raw"
printf 'label: dos\nstart=2048,type=83,bootable\n' | sfdisk -q "$work/disk.raw"
dd if="$part" of="$work/disk.raw" bs=1M seek=1 conv=notrunc,sparse status=none
dd if="$grub/boot.img" of="$work/disk.raw" bs=440 count=1 conv=notrunc status=none
dd if="$work/core.img" of="$work/disk.raw" bs=512 seek=1 conv=notrunc status=none
mv "$work/key" "$disk.key"
mv "$work/disk.raw" "$disk"
ln -sfn "$disk" "$out"
