//go:build linux

package qemu_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// diskLoad endlessly writes, checks, renames and removes files, and blocks of the second disk after
// its first 2 MiB. It stops between two rounds.
const diskLoad = `mkdir -p /root/load
cat >/dev/shm/load.sh <<'END'
cd /root/load
i=0
while [ ! -e /dev/shm/stop ]; do
  i=$((i + 1))
  n=$((i % 7))
  head -c $(((i * 7919 % 100 + 1) * 1024)) /dev/urandom >new
  sha256sum <new >newsum
  rm -f "f$n"
  mv new "f$n"
  mv newsum "s$n"
  dd if="f$n" of=/dev/vdb bs=4k seek=$((512 + i * 997 % 12000)) conv=notrunc 2>/dev/null
  [ $((i % 5)) = 0 ] && sync
  echo $i >/dev/shm/rounds
  sleep 0.1
done
echo >/dev/shm/stopped
END
sh /dev/shm/load.sh >/dev/null 2>&1 </dev/null &`

// newData writes data that no other round has, most of it not synced, and removes what the round
// before the last one wrote.
const newData = `n=%d
head -c 600000 /dev/urandom >/root/kept$n
head -c 100000 /dev/urandom >/dev/shm/kept$n
dd if=/dev/urandom of=/dev/vdb bs=64k count=4 seek=$((n * 4)) conv=notrunc 2>/dev/null
rm -f /root/kept$((n - 2)) /dev/shm/kept$((n - 2))
[ $((n %% 2)) = 1 ] || fstrim / 2>/dev/null || true`

const sums = `for f in /root/kept* /dev/shm/kept*; do echo $f; sha256sum <$f; done; dd if=/dev/vdb bs=64k count=28 2>/dev/null | sha256sum`

// consistent ends the load and checks each of its files.
const consistent = `touch /dev/shm/stop
while [ ! -e /dev/shm/stopped ]; do sleep 0.05; done
echo 3 >/proc/sys/vm/drop_caches
cd /root/load
for s in s*; do [ "$(cat $s)" = "$(sha256sum <f${s#s})" ] || echo "$s differs"; done
dmesg | grep -i -e 'EXT4-fs error' -e 'I/O error' || true`

// Six saves of a guest with two disks under load, some after a failed one: each resumes in a new VM
// on another node with the same files, synced or not, and the source continues each time. Its first
// disk is based on a raw file, which is not changed, and its directory is too long for a socket's
// address.
func TestSavesUnderLoad(t *testing.T) {
	fulltest.Only(t) // TestConformance saves and resumes a guest
	t.Parallel()
	image, raw := guest(t), filepath.Join(t.TempDir(), "base.raw")
	if err := qemu.Convert(t.Context(), hv.Disk{Path: image, Format: "qcow2"},
		hv.Disk{Path: raw, Format: "raw"}); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(t.TempDir(), "second,disk.qcow2")
	if err := qemu.CreateDisk(t.Context(), second, "qcow2", 64<<20); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(raw)
	if err != nil {
		t.Fatal(err)
	}
	d, other := open(t, filepath.Join(t.TempDir(), strings.Repeat("a-long-name/", 12))), open(t, t.TempDir())
	spec := newSpec(raw, "raw")
	spec.Disks = append(spec.Disks, hv.Disk{Path: second, Format: "qcow2"})
	vm := start(t, d, spec)
	run(t, d, spec.ID, "echo warm >/dev/shm/warm\n"+diskLoad)
	for round := 1; round <= 6; round++ {
		run(t, d, spec.ID, fmt.Sprintf(newData, round))
		want := run(t, d, spec.ID, sums)
		if round%2 == 0 {
			_, err := d.Save(t.Context(), spec.ID,
				hv.SaveSpec{Dir: t.TempDir(), Suspend: true, Step: at(hvtest.SaveSteps()[round/2+1],
					func() error { return errStep })})
			if !errors.Is(err, errStep) {
				t.Fatal(err)
			}
		}
		saved, err := d.Save(t.Context(), spec.ID, hv.SaveSpec{Dir: t.TempDir(), Suspend: true})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		clone, begun := cloneSpec(spec, saved), time.Now()
		start(t, other, clone)
		t.Logf("round %d: pause %s, %d + %d bytes, resumed in %s", round, saved.PausedFor, saved.Disks[0].ChangedBytes,
			saved.Disks[1].ChangedBytes, time.Since(begun))
		if bad := run(t, other, clone.ID, consistent); bad != "" {
			t.Errorf("round %d: the files of the load: %s", round, bad)
		}
		if got := run(t, other, clone.ID, sums); got != want || strings.Count(got, "/kept") < 2 {
			t.Errorf("round %d: got %s want %s", round, got, want)
		}
		remove(t, other, clone.ID)
		before := run(t, d, spec.ID, "cat /dev/shm/rounds")
		lives(t, d, vm, fmt.Sprint("round ", round))
		if after := run(t, d, spec.ID, "sleep 1; cat /dev/shm/rounds"); after == before {
			t.Errorf("round %d: the source's load stands still at %s", round, after)
		}
	}
	if got := run(t, d, spec.ID, "cat /sys/block/vdb/size"); got != "131072\n" {
		t.Errorf("the second disk has %s sectors", got)
	}
	if after, err := os.Stat(raw); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the base was written to: %v, %v", after, err)
	}
}
