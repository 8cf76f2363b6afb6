package registry

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// smallDisk mounts a file system of so many bytes.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill allocates all space of a directory's file system; the function releases it.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

func free(t *testing.T, r *Registry) int64 {
	t.Helper()
	d, err := r.DiskInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d.Free
}

func mustBeFull(t *testing.T, what string, err error) {
	t.Helper()
	e, ok := errors.AsType[*farm.Error](err)
	if !ok || e.Code != farm.CodeUnavailable || e.Message != blob.DiskFullMessage {
		t.Fatalf("%s on a full disk: %v", what, err)
	}
}

// TestFullDisk fills the disk before every step of a push: each step reports it, frees what it wrote, and
// continues when there is space again.
func TestFullDisk(t *testing.T) {
	base := smallDisk(t, "48m")
	r := open(t, base, newClock())
	f := noise(t, 1, 6*mib)
	req := request(idA, "v1", f)

	s, err := r.Negotiate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	filler := fill(t, base)
	if err := os.Truncate(filepath.Join(base, "filler"), 44*mib); err != nil { // enough space for a frame of the part
		t.Fatal(err)
	}
	before := free(t, r)
	if before == 0 || before >= 6*mib {
		t.Fatalf("%d bytes are free", before)
	}
	mustBeFull(t, "part", r.PutPart(t.Context(), s.Session, "disk.img", 0, f.part()))
	if after := free(t, r); after != before {
		t.Errorf("%d bytes were free before the part, %d after", before, after)
	}
	filler()
	if err := r.PutPart(t.Context(), s.Session, "disk.img", 0, f.part()); err != nil {
		t.Fatal(err)
	}

	filler = fill(t, base)
	putIndex := func() error {
		return r.PutIndex(t.Context(), s.Session, "disk.img", f.root(), strings.NewReader(string(f.index.Encoded())))
	}
	mustBeFull(t, "index", putIndex())
	_, err = r.Negotiate(t.Context(), request(idB, "v1"))
	mustBeFull(t, "negotiation", err)
	filler()
	if err := putIndex(); err != nil {
		t.Fatal(err)
	}

	commit := api.PushCommit{Roots: map[string]string{"disk.img": f.root()}}
	filler = fill(t, base)
	_, err = r.CommitPush(t.Context(), s.Session, commit)
	mustBeFull(t, "commit", err)
	if tags(r, idA) != "none" {
		t.Error("a failed commit is seen")
	}
	filler()
	if _, err := r.CommitPush(t.Context(), s.Session, commit); err != nil {
		t.Fatal(err)
	}

	filler = fill(t, base)
	mustBeFull(t, "change", r.SetArch(t.Context(), idA, "arm64"))
	filler()
	if err := verifyAll(r); err != nil {
		t.Error(err)
	}
}

// TestHopelessPushes: what cannot fit is refused with both sizes before a byte is
// sent; what may fit is not.
func TestHopelessPushes(t *testing.T) {
	base := smallDisk(t, "48m")
	r := open(t, base, newClock())
	announce := func(id string, size int64) error {
		req := request(id, "v1")
		req.Files = []api.PushFile{{Name: "disk.img", Kind: api.FileDisk, Size: size}}
		_, err := r.Negotiate(t.Context(), req)
		return err
	}
	for _, size := range []int64{64 * mib, 100 << 30} {
		err := announce(idA, size)
		e, ok := errors.AsType[*farm.Error](err)
		if !ok || e.Code != farm.CodeUnavailable ||
			!strings.HasPrefix(e.Message, blob.DiskFullMessage+": the push has up to ") ||
			!strings.HasSuffix(e.Message, " MiB are free") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if err := announce(idA, 20*mib); err != nil {
		t.Error(err)
	}
	held := makeContent("disk.img", api.FileDisk, "held")
	mustPush(t, r, request(idA, "v2", held), held)
	defer fill(t, base)()
	req := request(idB, "v1", held)
	req.Files[0].Root = held.root()
	chains, err := r.resolveChains(t.Context(), req, nil)
	must(t, err)
	if err := r.checkSpace(t.Context(), "", req, chains); err != nil {
		t.Errorf("a push of what is here: %v", err)
	}
}

// TestIdlePushFreesSpace: an idle push is ended for one that would not fit otherwise, and only then.
func TestIdlePushFreesSpace(t *testing.T) {
	clock := newClock()
	r := open(t, smallDisk(t, "48m"), clock)
	left := noise(t, 1, 20*mib)
	s, err := r.Negotiate(t.Context(), request(idA, "v1", left))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := send(r, s, []content{left}); err != nil {
		t.Fatal(err)
	}
	announced := free(t, r) + mib
	next := request(idB, "v1")
	next.Files = []api.PushFile{{Name: "disk.img", Kind: api.FileDisk, Size: announced}}
	clock.add(minEvictableIdle)
	if _, err := r.Negotiate(t.Context(), next); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Fatalf("a push that does not fit beside one that goes on: %v", err)
	}
	clock.add(time.Second)
	if _, err := r.Negotiate(t.Context(), next); err != nil {
		t.Fatalf("a push that fits without one that is idle: %v", err)
	}
	if _, err := r.PushSession(t.Context(), s.Session); farm.CodeOf(err) != farm.CodeNotFound {
		t.Fatalf("the idle push is still there: %v", err)
	}
}

// TestScanOnAFullDisk: scan results are not small writes: they wait for space, never use the reserve, and leave
// nothing. The older ones stay, and can be removed.
func TestScanOnAFullDisk(t *testing.T) {
	base := smallDisk(t, "48m")
	r := openReserving(t, base, nil)
	mustPush(t, r, request(idA, "v1"))
	latest := VersionRef{ID: idA}
	must(t, attachScan(r, latest, summaryOf(1), "{}"))
	report := `{"r":"` + string(noise(t, 1, mib).stored) + `"}`
	empty := fill(t, base)
	before := free(t, r)
	mustBeFull(t, "results of a scan", attachScan(r, latest, summaryOf(2), report))
	if !r.dir.HasReserve() || free(t, r) != before || len(scanFiles(t, base, idA)) != 1 {
		t.Errorf("reserve: %t; %d bytes were free, %d are; %v", r.dir.HasReserve(), before, free(t, r),
			scanFiles(t, base, idA))
	}
	if got := scanned(r, latest); got != "1 critical: {}" {
		t.Error(got)
	}
	must(t, r.SetArch(t.Context(), idA, "arm64")) // which uses the reserve
	if err := attachScan(r, latest, summaryOf(2), "{}"); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Error(err)
	}
	must(t, r.RemoveScan(t.Context(), latest))
	empty()
	r.maintainReserve(t.Context())
	must(t, attachScan(r, latest, summaryOf(2), report))
}
