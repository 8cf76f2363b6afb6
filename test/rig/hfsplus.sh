#!/bin/bash
# Fills an HFS+ file system in an image from a directory. A guest with Debian's kernel does so: most machines have a
# kernel without the driver. The names of the directory must be in UTF-8.
#
#   test/rig/hfsplus.sh IMAGE DIRECTORY [COMMANDS]
#
# COMMANDS are run by busybox in the root of the file system after that. No root, loop device or mount is needed. The
# packages are kept in ${XDG_CACHE_HOME:-~/.cache}/buildyard/guest, as those of the demo guest.
set -euo pipefail
export LC_ALL=C
umask 022

die() {
  echo "test/rig/hfsplus.sh: $*" >&2
  exit 1
}

[ $# -ge 2 ] || die "usage: hfsplus.sh IMAGE DIRECTORY [COMMANDS]"
image=$(realpath "$1") tree=$(realpath "$2") commands=${3:-:}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/buildyard/guest
for tool in apt-get dpkg-deb cpio flock qemu-system-x86_64; do
  command -v "$tool" >/dev/null || die "$tool is missing; install: cpio qemu-system-x86"
done
mkdir -p "$cache/debs"
work=$(mktemp -d)
guest=
trap '[ -z "$guest" ] || kill "$guest" || true; rm -rf "$work"' EXIT
trap 'exit 143' INT TERM

# download PACKAGE: downloads a package that the cache lacks.
download() {
  compgen -G "$cache/debs/$1_*.deb" >/dev/null && return 0
  mkdir "$work/new"
  (cd "$work/new" && apt-get -q download "$1" >&2) || die "download failed; is the package list new (apt-get update)?"
  mv "$work/new"/*.deb "$cache/debs/"
  rmdir "$work/new"
}

# initramfs writes the kernel and what it starts with. Modules are loaded in this order.
modules="drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_legacy_dev
  drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci drivers/block/virtio_blk drivers/cdrom/cdrom
  fs/nls/nls_utf8 fs/hfsplus/hfsplus"
initramfs() {
  local i=$work/initramfs kernel m n=10 package
  package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
  [ -n "$package" ] || die "the package list knows no kernel; apt-get update?"
  (
    flock 9 # runs at the same time share one cache
    download "$package"
    download busybox-static
  ) 9>"$cache/lock"
  kernel=./lib/modules/${package#linux-image-}/kernel
  mkdir -p "$i"/{bin,dev,proc,m,v} "$work/k"
  dpkg-deb --fsys-tarfile "$cache/debs/$package"_*.deb | tar -x -C "$work/k" --wildcards './boot/vmlinuz-*' \
    "$kernel/drivers/virtio/*" "$kernel/drivers/block/virtio_blk.ko*" "$kernel/drivers/cdrom/*" "$kernel/fs/nls/*" \
    "$kernel/fs/hfsplus/*"
  for m in $modules; do
    [ ! -e "$work/k/$kernel/$m.ko" ] || cp "$work/k/$kernel/$m.ko" "$i/m/$n-${m##*/}.ko" # else it is in the kernel
    n=$((n + 1))
  done
  [ -e "$i/m/18-hfsplus.ko" ] || die "$package has no driver for HFS+"
  dpkg-deb --fsys-tarfile "$cache/debs/busybox-static"_*.deb | tar -x -O ./bin/busybox >"$i/bin/busybox"
  chmod 755 "$i/bin/busybox"
  printf '%s\n' "$commands" >"$i/commands"
  cat >"$i/init" <<'S'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for m in /m/*; do insmod "$m"; done
mount -t hfsplus -o nodecompose /dev/vda /v && tar -x -p -f /dev/vdb -C /v && cd /v && sh -e /commands && cd / &&
  umount /v && echo "the volume is filled"
poweroff -f
S
  chmod 755 "$i/init"
  (cd "$i" && find . | cpio -o -H newc --quiet -R 0:0) >"$work/initrd"
  mv "$work"/k/boot/vmlinuz-* "$work/vmlinuz"
}

initramfs
tar -C "$tree" --format=gnu --sort=name -cf "$work/tree.tar" .
# Not with KVM: on some machines it is there and kernels hang under it.
timeout 1800 qemu-system-x86_64 -accel tcg -cpu max -m 512 -display none -no-reboot -nodefaults -serial stdio \
  -kernel "$work/vmlinuz" -initrd "$work/initrd" -append 'console=ttyS0 quiet panic=-1' \
  -drive "file=$image,format=raw,if=virtio,cache=unsafe" -drive "file=$work/tree.tar,format=raw,if=virtio,readonly=on" \
  </dev/null >"$work/log" 2>&1 &
guest=$!
wait "$guest" || true
guest=
grep -q "the volume is filled" "$work/log" || die "the guest did not fill the volume: $(tail -n 20 "$work/log")"
