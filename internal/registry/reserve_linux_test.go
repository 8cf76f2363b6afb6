package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

func openReserving(t *testing.T, base string, hook func(string)) *Registry {
	t.Helper()
	r, err := Open(t.Context(),
		Options{Base: base, Now: newClock().Now, ReserveBytes: 64 * mib, Hooks: layout.Hooks{Step: hook}})
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	r.maintainReserve(t.Context())
	if !r.dir.HasReserve() {
		t.Fatal("no reserve was made")
	}
	return r
}

// TestReserve: on a full disk small writes still succeed, large ones wait until there is space.
func TestReserve(t *testing.T) {
	base := smallDisk(t, "48m")
	r := openReserving(t, base, nil)
	a := makeContent("disk", api.FileDisk, "a")
	mustPush(t, r, request(idA, "v1", a), a)
	mustPush(t, r, request(idB, "v1", a), a)
	b := noise(t, 1, mib)
	s, err := r.Negotiate(t.Context(), request(idA, "v2", b))
	must(t, err)
	roots, err := send(r, s, []content{b})
	must(t, err)
	late, err := r.Negotiate(t.Context(), request(idA, "v3", b))
	must(t, err)

	empty := fill(t, base)
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	if r.dir.HasReserve() {
		t.Fatal("the reserve was not needed: the disk is not full")
	}
	must(t, r.SetArch(t.Context(), idA, "arm64"))
	must(t, r.Revert(t.Context(), VersionRef{ID: idA, Tag: "v2"}))
	must(t, r.Delete(t.Context(), idB))
	r.maintainReserve(t.Context()) // the disk has no space for it
	err = r.PutPart(t.Context(), late.Session, "disk.img", 0, b.part())
	mustBeStrained := func(what string, err error) {
		t.Helper()
		if farm.CodeOf(err) != farm.CodeUnavailable ||
			!strings.HasPrefix(err.Error(), blob.DiskFullMessage+": the disk reserve is in use") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	mustBeStrained("part", err)
	_, err = r.Negotiate(t.Context(), request(idB, "v2", b))
	mustBeStrained("negotiation", err)
	empty()
	r.maintainReserve(t.Context())
	if !r.dir.HasReserve() || r.refuseWhenFull() != nil {
		t.Fatal("with room there is no reserve, or no push")
	}
	mustPush(t, r, request(idB, "v2", b), b)
	must(t, verifyAll(r))
	r.reserveReleased.Store(true) // two operations have met the full disk, and the reserve is there again
	if r.maintainReserve(t.Context()); r.refuseWhenFull() != nil {
		t.Error("with a reserve pushes are refused")
	}
}

// TestReservations: space is reserved for the unsent data of unfinished pushes.
func TestReservations(t *testing.T) {
	base := smallDisk(t, "96m")
	r := open(t, base, newClock())
	announce := func(id string, c content, data int64) (api.PushSession, error) {
		req := request(id, "v1", c)
		req.Files[0].Data = data
		return r.Negotiate(t.Context(), req)
	}
	reserved := func() int64 {
		t.Helper()
		d, err := r.DiskInfo(t.Context())
		must(t, err)
		return d.Reserved
	}
	first := noise(t, 1, 5*mib) // the part that is sent
	first.spec.Size = 50 * mib
	s, err := announce(idA, first, 50*mib)
	must(t, err)
	if got, want := reserved(), int64(51*mib); got != want {
		t.Fatalf("%d bytes are reserved, want %d", got, want)
	}
	big := content{spec: api.PushFile{Name: "disk.img", Kind: api.FileDisk, Size: 60 * mib}}
	_, err = announce(idB, big, 60*mib)
	want := fmt.Sprintf(
		"%s: the push has up to 60 MiB and needs at least 62 MiB; 51 MiB are reserved for other pushes, ",
		blob.DiskFullMessage)
	if farm.CodeOf(err) != farm.CodeUnavailable || !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("a push that does not fit beside the first: %v", err)
	}
	little := content{spec: api.PushFile{Name: "disk.img", Kind: api.FileDisk, Size: 30 * mib}}
	small, err := announce(idB, little, 30*mib)
	must(t, err)
	// Sent data has no reservation any longer, and neither have aborted pushes.
	must(t, r.PutPart(t.Context(), s.Session, "disk.img", 0, first.part()))
	if got := reserved(); got != 51*mib-int64(len(first.stored))+30*mib+30*mib/50 {
		t.Fatalf("%d bytes are reserved after a part", got)
	}
	must(t, r.AbortPush(t.Context(), small.Session))
	must(t, r.AbortPush(t.Context(), s.Session))
	if got := reserved(); got != 0 {
		t.Fatalf("%d bytes are reserved by nobody", got)
	}
	if _, err = announce(idB, big, 60*mib); err != nil {
		t.Fatal(err)
	}
}

// TestTrashFreesSpace: a push that would not fit otherwise empties the trash.
func TestTrashFreesSpace(t *testing.T) {
	base := smallDisk(t, "48m")
	r := open(t, base, newClock())
	old := noise(t, 1, 25*mib)
	req := request(idA, "v1", old)
	mustPush(t, r, req, old)
	must(t, r.Delete(t.Context(), idA))
	_, err := r.GC(t.Context(), GCOptions{})
	must(t, err)
	next := request(idB, "v1")
	next.Files = []api.PushFile{{Name: "disk.img", Kind: api.FileDisk, Size: 40 * mib, Data: 40 * mib}}
	_, err = r.Negotiate(t.Context(), next)
	must(t, err)
	if d, _ := r.DiskInfo(t.Context()); d.Reclaimable != 0 {
		t.Fatalf("%+v", d)
	}
}

// listSteps returns the names of all steps that the operations come to, in order.
func listSteps(t *testing.T) (steps []string) {
	t.Helper()
	hooks := layout.Hooks{
		Step: func(step string) { steps = append(steps, step) },
		Sync: func(*os.File) error { return nil },
	}
	r, err := Open(t.Context(), Options{Base: t.TempDir(), Hooks: hooks})
	must(t, err)
	defer r.Close()
	for _, op := range operations {
		must(t, op.do(r))
	}
	return steps
}

// TestFullAtEveryPoint fills the disk once at every point, like TestCrashAtEveryPoint: the operation succeeds
// or reports that the disk is full, no version is lost, and with space it is completed.
func TestFullAtEveryPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a storage for every step")
	}
	disk, all := smallDisk(t, "12m"), os.Getenv(crashAll) != ""
	for i, n := range fulltest.Some(t, 24, sampledSteps(listSteps(t))) {
		for j, reserve := range []int64{0, mib / 2} {
			if all || i%2 == j { // half of the points are tried with a reserve, and the others without
				fullAtStep(t, disk, n, reserve)
			}
		}
	}
}

func fullAtStep(t *testing.T, disk string, n int, reserve int64) {
	t.Helper()
	base := filepath.Join(disk, fmt.Sprint(n))
	must(t, os.Mkdir(base, 0o755))
	left, at := n, ""
	empty := func() {}
	r, err := Open(t.Context(), Options{
		Base: base, Now: newClock().Now, ReserveBytes: reserve,
		Hooks: layout.Hooks{Step: func(step string) {
			if left--; left == 0 {
				at, empty = step, fill(t, disk)
			}
		}},
	})
	if err != nil && at == "" {
		t.Fatal(err)
	}
	if err != nil { // full while the storage is made
		empty()
		empty = func() {}
		if r, err = Open(t.Context(), Options{Base: base, Now: newClock().Now}); err != nil {
			t.Fatalf("step %d (%s): %v", n, at, err)
		}
	}
	r.maintainReserve(t.Context())
	after := 3 // operations with the disk full, and then with space again; all of them with BUILDYARD_TEST_ALL
	for _, op := range operations {
		if at != "" && os.Getenv(crashAll) == "" {
			if after--; after < 0 {
				break
			}
		}
		if err := op.do(r); err != nil {
			if at == "" || !strings.Contains(err.Error(), blob.DiskFullMessage) && !isDiskFull(err) {
				t.Fatalf("step %d (%s), %s: %v", n, at, op.name, err)
			}
			empty()
			empty = func() {}
			r.maintainReserve(t.Context())
			mustHaveLostNothing(t, r, at)
			if err := op.do(r); err != nil {
				t.Fatalf("step %d (%s), %s again: %v", n, at, op.name, err)
			}
		}
		if got := crashState(r); got != op.want {
			t.Fatalf("step %d (%s), after %s: %q", n, at, op.name, got)
		}
	}
	empty()
	mustHaveLostNothing(t, r, at)
	must(t, errors.Join(verifyAll(r), r.Close(), os.RemoveAll(base)))
}

func mustHaveLostNothing(t *testing.T, r *Registry, at string) {
	t.Helper()
	report, err := r.Check(context.Background(), CheckOptions{Deep: true})
	if err != nil || report.Lost > 0 {
		t.Fatalf("full at %s: %+v, %v", at, report.Findings, err)
	}
}
