#!/bin/bash
# Builds the demo guest: a small Linux that boots from its own disk, made of
# Debian packages only. No root, loop device, mount or chroot is needed.
#
#   guest/build.sh [--user NAME] [--password TEXT] [--git] [--fresh] OUT.qcow2
#
# The guest has an agent (qemu-guest-agent), bash, busybox, DHCP, a log-in on tty1, a console on
# ttyS0 and an SSH server on port 22. Without --password one is made up and
# printed. With --git it also has git for https, which jobs of GitLab need. Packages and the finished image are kept in
# ${XDG_CACHE_HOME:-~/.cache}/buildyard/guest; --fresh builds the image again from the start.
set -euo pipefail
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/buildyard/guest
user=demo password='' fresh='' git='' out=''
disk_mb=1024

die() {
  echo "guest/build.sh: $*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case "$1" in
  --user) user=${2:?--user needs a name}; shift 2 ;;
  --password) password=${2:?--password needs a text}; shift 2 ;;
  --fresh) fresh=1; shift ;;
  --git) git=-git; shift ;;
  -*) die "unknown option $1" ;;
  *) [ -z "$out" ] || die "one output file, please"; out=$1; shift ;;
  esac
done
[ -n "$out" ] || die "usage: build.sh [--user NAME] [--password TEXT] [--git] [--fresh] OUT.qcow2"
[[ $user =~ ^[a-z_][a-z0-9_-]{0,31}$ && $user != root ]] || die "user name '$user': lower-case letters, digits, _ and -, not root"
case "$password" in *$'\n'*) die "a password has no line break" ;; esac
[ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || die "needs Debian (or a child of it) on amd64"
for tool in apt-get dpkg-deb mke2fs debugfs sfdisk cpio qemu-img flock perl; do
  command -v "$tool" >/dev/null || die "$tool is missing; install: $(tr '\n' ' ' <"$here/packages.txt")"
done

mkdir -p "$cache/debs"
exec 9>"$cache/lock"
flock 9 # concurrent builds share one cache
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# fetch DIR PACKAGE...: downloads what the cache lacks and unpacks it all.
fetch() {
  local dir=$1 p missing=()
  shift
  for p; do compgen -G "$cache/debs/${p}_*.deb" >/dev/null || missing+=("$p"); done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "downloading ${#missing[@]} packages" >&2
    mkdir -p "$work/new"
    (cd "$work/new" && apt-get -q download "${missing[@]}" >&2) || die "download failed; is the package list up to date (apt-get update)?"
    mv "$work"/new/*.deb "$cache/debs/"
  fi
  mkdir -p "$dir"
  for p; do dpkg-deb -x "$cache/debs/${p}"_*.deb "$dir"; done
}

# partition_tools DIR: what enlarges a partition that is in use, out of packages
# that are much larger.
partition_tools() {
  local p=$work/partition
  fetch "$p" fdisk util-linux libfdisk1 libreadline8 libsmartcols1
  (cd "$p" && find . -path "*bin/sfdisk" -o -path "*bin/partx" -o -name "lib*.so.*" | cpio -pdm --quiet "$1")
}

# git_tools DIR: git for https, and the certificates that it trusts.
git_tools() {
  # shellcheck disable=SC2046
  fetch "$1" $(cat "$here/git-debs.txt")
  rm -rf "$1"/usr/share/perl5 "$1"/usr/share/gitweb "$1"/usr/lib/git-core/git-{instaweb,shell,daemon,imap-send,http-push}
  mkdir -p "$1/etc/ssl/certs"
  cat "$1"/usr/share/ca-certificates/mozilla/*.crt >"$1/etc/ssl/certs/ca-certificates.crt"
}

# root_tree DIR: the guest's file system without kernel.
root_tree() {
  local r=$1 a
  # shellcheck disable=SC2046
  fetch "$r" $(cat "$here/debs.txt")
  partition_tools "$r"
  [ -z "$git" ] || git_tools "$r"
  rm -rf "$r"/usr/share/{doc,man,locale,info,lintian,bash-completion,zoneinfo} "$r"/lib/systemd \
    "$r"/etc/{init.d,default,systemd} "$r"/usr/lib/x86_64-linux-gnu/{gconv,audit} "$r"/var/cache
  mkdir -p "$r"/{dev,proc,sys,run,tmp,root,mnt,home,bin,sbin,usr/bin,usr/sbin,usr/local/bin,lib/modules,boot,etc/dropbear,var/log,var/tmp}
  chmod 1777 "$r/tmp" "$r/var/tmp"
  chmod 700 "$r/root"
  [ -e "$r/bin/busybox" ] || ln -s ../usr/bin/busybox "$r/bin/busybox"
  for a in $("$r/bin/busybox" --list-full); do
    [ -e "$r/$a" ] || [ -L "$r/$a" ] || { mkdir -p "$r/$(dirname "$a")" && ln -s /bin/busybox "$r/$a"; }
  done
  ln -sf bash "$r/bin/sh"
  cp -a "$here/rootfs/." "$r/"
  echo guest >"$r/etc/hostname"
  printf '127.0.0.1 localhost guest\n' >"$r/etc/hosts"
  printf '/bin/sh\n/bin/bash\n' >"$r/etc/shells"
  printf 'root:x:0:\ntty:x:5:\nusers:x:100:\n' >"$r/etc/group"
  printf 'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n' >"$r/etc/profile"
  printf 'PRETTY_NAME="Buildyard demo guest (Debian packages)"\nID=debian\nVERSION_ID="12"\n' >"$r/etc/os-release"
}

# kernel_into ROOT: kernel, initramfs, and the two modules used after boot.
# The order of the numbered modules is the order of their loading.
kernel_into() {
  local r=$1 k=$work/kernel i=$work/initramfs n=10 pkg mods m
  pkg=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
  [ -n "$pkg" ] || die "the package list knows no cloud kernel; apt-get update?"
  fetch "$k" "$pkg"
  mods=$k/lib/modules/${pkg#linux-image-}/kernel
  mkdir -p "$i"/{bin,dev,proc,sys,root,m}
  cp -L "$r/bin/busybox" "$i/bin/busybox"
  cp "$here/initramfs/init" "$i/init"
  for m in virtio/virtio_ring virtio/virtio virtio/virtio_pci_legacy_dev virtio/virtio_pci_modern_dev virtio/virtio_pci \
    block/virtio_blk ../net/core/failover net/net_failover net/virtio_net char/virtio_console char/hw_random/virtio-rng; do
    [ -e "$mods/drivers/$m.ko" ] && cp "$mods/drivers/$m.ko" "$i/m/$n-${m##*/}.ko"
    n=$((n + 1))
  done
  (cd "$i" && find . -print | sort | cpio -o -H newc --quiet -R 0:0) >"$r/boot/initrd.img"
  cp "$k/boot/vmlinuz-${pkg#linux-image-}" "$r/boot/vmlinuz"
  cp "$mods/drivers/acpi/button.ko" "$mods/drivers/input/evdev.ko" "$r/lib/modules/" 2>/dev/null || true
}

# boot_sectors DISK: the MBR's boot code and GRUB in the gap before the partition.
boot_sectors() {
  local g=$work/grub
  fetch "$g" grub-pc-bin grub-common libdevmapper1.02.1 liblzma5
  grep -v '^#' "$here/grub.cfg" >"$work/grub.cfg" # the parser of the core image knows no comments
  LD_LIBRARY_PATH=$g/usr/lib/x86_64-linux-gnu:$g/lib/x86_64-linux-gnu "$g/usr/bin/grub-mkimage" \
    -d "$g/usr/lib/grub/i386-pc" -O i386-pc -p '(hd0,msdos1)/boot/grub' -c "$work/grub.cfg" \
    -o "$work/core.img" biosdisk part_msdos ext2 linux16 normal
  [ "$(stat -c %s "$work/core.img")" -lt $((2047 * 512)) ] || die "GRUB does not fit before the partition"
  dd if="$g/usr/lib/grub/i386-pc/boot.img" of="$1" bs=440 count=1 conv=notrunc status=none
  dd if="$work/core.img" of="$1" bs=512 seek=1 conv=notrunc status=none
}

# base_disk FILE: the whole disk, still without user and password.
base_disk() {
  local r=$work/root part=$work/part.raw disk=$work/disk.raw
  root_tree "$r"
  kernel_into "$r"
  truncate -s $((disk_mb - 1))M "$part"
  # crc32c is a module in this kernel and not loaded: no metadata checksums.
  mke2fs -q -t ext4 -F -d "$r" -L root -m 0 -J size=4 -O ^metadata_csum -E lazy_itable_init=1,root_owner=0:0 "$part"
  own_by_root "$part"
  truncate -s ${disk_mb}M "$disk"
  printf 'label: dos\nstart=2048,type=83,bootable\n' | sfdisk -q "$disk"
  dd if="$part" of="$disk" bs=1M seek=1 conv=notrunc,sparse status=none
  boot_sectors "$disk"
  mv "$disk" "$1"
}

# own_by_root PARTITION: mke2fs -d keeps the builder's uid; a guest's files are root's.
own_by_root() {
  [ "$(id -u)" = 0 ] && return
  (cd "$work/root" && find . -mindepth 1 -printf '%P\n') |
    sed 's/.*/set_inode_field "&" uid 0\nset_inode_field "&" gid 0/' |
    debugfs -w -f - "$1" >/dev/null 2>&1
}

# add_user DISK: accounts, home and password hash, written into the ext4 partition.
add_user() {
  local hash
  # perl is part of every Debian; the password stays out of argument lists.
  hash=$(printf '%s' "$password" | perl -e 'my @c = (0 .. 9, "a" .. "z"); open my $r, "<", "/dev/urandom"; read $r, my $b, 16;
    print crypt(join("", <STDIN>), "\$6\$" . join("", map { $c[ord($_) % 36] } split //, $b) . "\$")')
  [[ $hash == '$6$'* ]] || die "could not hash the password"
  printf 'root:x:0:0:root:/root:/bin/bash\n%s:x:1000:100:%s:/home/%s:/bin/bash\n' "$user" "$user" "$user" >"$work/passwd"
  (umask 077 && printf 'root:!:19000:0:99999:7:::\n%s:%s:19000:0:99999:7:::\n' "$user" "$hash" >"$work/shadow")
  cat >"$work/commands" <<-C
	write $work/passwd etc/passwd
	set_inode_field etc/passwd uid 0
	set_inode_field etc/passwd gid 0
	write $work/shadow etc/shadow
	set_inode_field etc/shadow mode 0100600
	set_inode_field etc/shadow uid 0
	set_inode_field etc/shadow gid 0
	mkdir home/$user
	set_inode_field home/$user uid 1000
	set_inode_field home/$user gid 100
	C
  debugfs -w -f "$work/commands" "$1?offset=1048576" >"$work/debugfs.log" 2>&1
  debugfs -R "stat home/$user" "$1?offset=1048576" 2>/dev/null | grep -q 'User:  *1000' || die "$(cat "$work/debugfs.log")"
}

key=$(cd "$here" && find build.sh debs.txt git-debs.txt grub.cfg rootfs initramfs -type f | sort | xargs sha256sum | sha256sum | cut -c1-16)
base=$cache/base-$key$git.raw
if [ -n "$fresh" ] || [ ! -e "$base" ]; then
  base_disk "$work/base.raw"
  find "$cache" -maxdepth 1 -name 'base-*.raw' ! -name "base-$key*" -delete # older recipes
  mv "$work/base.raw" "$base"
fi

made=''
if [ -z "$password" ]; then
  password=$(head -c 12 /dev/urandom | base64 | tr '+/' 'xy')
  made=" password=$password"
fi
cp --sparse=always "$base" "$work/disk.raw"
add_user "$work/disk.raw"
# Written next to its target and renamed: a reader never sees a partial image.
qemu-img convert -f raw -O qcow2 "$work/disk.raw" "$out.part"
mv "$out.part" "$out"
echo "guest image $out user=$user$made"
