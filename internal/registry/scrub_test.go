package registry

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
)

func openScrubbing(t *testing.T, base string, rate int64) *Registry {
	t.Helper()
	r, err := Open(t.Context(), Options{Base: base, ScrubRate: rate})
	must(t, err)
	return r
}

// TestScrubFindsAFlippedBit: the damage is reported, the version is refused, the mark survives a restart, and a
// push of the same layer replaces the file.
func TestScrubFindsAFlippedBit(t *testing.T) {
	h := makeHurt(t)
	flip(t, h.layer(h.a), 7)
	synctest.Test(t, func(t *testing.T) {
		r := openScrubbing(t, h.base, 1000)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.runScrub(ctx) }()
		time.Sleep(time.Hour)
		for range 2 { // before and after a restart
			damaged := r.Status().Damaged
			if n := metrictest.Values(r.Families())["buildyard_registry_damaged_layers"]; n != 1 {
				t.Errorf("%v damaged layers are counted", n)
			}
			if len(damaged) != 1 || damaged[0].ID != idA || *damaged[0].Version != 0 ||
				!strings.Contains(damaged[0].Problem, h.a.root()+" is damaged") {
				t.Fatalf("%+v", damaged)
			}
			_, err := r.Manifest(ctx, VersionRef{ID: idA, Tag: "v1"})
			if farm.CodeOf(err) != farm.CodeRefused ||
				!strings.HasPrefix(err.Error(), "Version 0 (tag v1) of template template a is damaged: layer file ") {
				t.Fatalf("pull: %v", err)
			}
			if _, err := r.OpenBlob(ctx, h.a.root()); farm.CodeOf(err) != farm.CodeRefused {
				t.Fatalf("range: %v", err)
			}
			if _, err := r.Manifest(ctx, VersionRef{ID: idB}); err != nil {
				t.Fatal(err)
			}
			stop()
			<-ended
			must(t, r.Close())
			r = openScrubbing(t, h.base, 1000)
			ctx, stop = context.WithCancel(t.Context())
		}
		defer stop()
		// The client is asked for the layer again, which replaces the damaged one.
		req := request(idC, "v1", h.a)
		req.Files[0].Root = h.a.root()
		mustPush(t, r, req, h.a)
		must(t, verifyAll(r))
		if s := r.scrubStatus(); s.Damaged != 0 {
			t.Fatalf("%+v", s)
		}
		must(t, r.Close())
		r = openScrubbing(t, h.base, 0)
		must(t, verifyAll(r))
		must(t, r.Close())
	})
}

// TestScrubClearsAMark: a layer whose file was repaired is served again after the next scrub.
func TestScrubClearsAMark(t *testing.T) {
	h := makeHurt(t)
	r := openScrubbing(t, h.base, 0)
	root := h.a.index.Digest()
	flip(t, h.layer(h.a), 7)
	r.checkLayer(t.Context(), root, 0, func(int, int) {})
	if len(r.Status().Damaged) != 1 {
		t.Fatal("not found")
	}
	flip(t, h.layer(h.a), 7)
	r.checkLayer(t.Context(), root, 0, func(int, int) {})
	must(t, verifyAll(r))
	must(t, r.Close())
}

// TestScrubContinues: the rate is kept, traffic makes it slower, a restart continues where it was, and the next round
// begins a week after this one.
func TestScrubContinues(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	const layers, bytes = 6, 300000
	for i := range layers {
		c := noise(t, uint64(i+1), bytes)
		mustPush(t, r, request(idA, fmt.Sprint("v", i), c), c)
	}
	must(t, r.Close())
	synctest.Test(t, func(t *testing.T) {
		const rate = 10000 // 30 s a layer
		run := func(r *Registry, length time.Duration) {
			ctx, stop := context.WithTimeout(t.Context(), length)
			defer stop()
			r.runScrub(ctx)
			must(t, r.Close())
		}
		r := openScrubbing(t, base, rate)
		run(r, 100*time.Second)
		if got := r.scrubStatus().Verified; got < 80*rate || got > 100*rate {
			t.Fatalf("%d bytes in 100 s", got)
		}
		r = openScrubbing(t, base, rate)
		if got := r.scrubStatus().Verified; got < 80*rate {
			t.Fatalf("%d bytes are remembered", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.runScrub(ctx) }()
		time.Sleep(99 * time.Second) // it ends at 180 s
		s := r.scrubStatus()
		if s.Finished == 0 || s.Verified < layers*bytes || s.Verified > layers*bytes+blob.MaxFrameSize {
			t.Fatalf("after its time: %+v", s)
		}
		time.Sleep(6 * 24 * time.Hour)
		if r.scrubStatus().Began != s.Began {
			t.Fatal("a second round within the week")
		}
		time.Sleep(24 * time.Hour)
		if r.scrubStatus().Began == s.Began {
			t.Fatal("no second round after a week")
		}
		stop()
		<-ended
		must(t, r.Close())
	})
}

// TestPaceYields: work that others wait for is a tenth as fast, and never stands still.
func TestPaceYields(t *testing.T) {
	for busy, want := range map[bool]time.Duration{false: 10 * time.Second, true: 100 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			p := &rateLimiter{rate: 100, busy: func() bool { return busy }}
			began := time.Now()
			for range 100 {
				must(t, p.wait(t.Context(), 10))
			}
			if took := time.Since(began); took < want-time.Second || took > want {
				t.Errorf("busy %v: %s", busy, took)
			}
			if q := p.progress(2000); q.Done != 1000 || q.Total != 2000 || q.Rate < int64(1000/want.Seconds()) ||
				q.Left < 9 {
				t.Errorf("%+v", q)
			}
		})
	}
	p := &rateLimiter{}
	for range 1000 {
		must(t, p.wait(t.Context(), 1<<30)) // no bound
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p.wait(ctx, 1) == nil {
		t.Error("an end of the context is not noticed")
	}
}

// TestStorageJob: one job at a time, whose result is kept and which ends when it is canceled.
func TestStorageJob(t *testing.T) {
	h := makeHurt(t)
	r := open(t, h.base, newClock())
	if u := r.StorageJobStatus(); u.State != api.StorageJobNone {
		t.Fatalf("%+v", u)
	}
	for _, bad := range []api.StorageJobRequest{{Do: "mend"}, {Do: api.StorageJobCheck, Rate: -1}} {
		if _, err := r.StartStorageJob(bad); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	slow := api.StorageJobRequest{Do: api.StorageJobCheck, Deep: true, Rate: 1}
	_, err := r.StartStorageJob(slow)
	must(t, err)
	if _, err := r.StartStorageJob(slow); farm.CodeOf(err) != farm.CodeConflict {
		t.Fatalf("a second job: %v", err)
	}
	r.CancelStorageJob()
	if u := r.StorageJobStatus(); u.State != api.StorageJobFailed || u.Problem != errJobCanceled.Error() {
		t.Fatalf("%+v", u)
	}
	for _, do := range []string{api.StorageJobCheck, api.StorageJobRepair, api.StorageJobGC} {
		_, err := r.StartStorageJob(api.StorageJobRequest{Do: do, Deep: true})
		must(t, err)
		<-r.storageJob.done
		u := r.StorageJobStatus()
		if u.State != api.StorageJobDone || (u.Check != nil) != (do == api.StorageJobCheck) ||
			(u.Repair != nil) != (do == api.StorageJobRepair) || (u.GC != nil) != (do == api.StorageJobGC) {
			t.Fatalf("%s: %+v", do, u)
		}
	}
	_, err = r.StartStorageJob(slow)
	must(t, err)
	must(t, r.Close()) // ends it
}
