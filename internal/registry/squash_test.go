package registry

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// overwritten pushes an incompressible disk of frames frames to template idA, and a tag that overwrites the
// first changed of them.
func overwritten(t *testing.T, r *Registry, frames, changed int) *grown {
	t.Helper()
	g := &grown{data: make([]byte, frames*blob.MaxFrameSize)}
	rng := rand.NewChaCha8([32]byte{byte(frames), byte(changed)})
	_, _ = rng.Read(g.data)
	base := g.base(t)
	mustPush(t, r, request(idA, "v0", base), base)
	before := slices.Clone(g.data)
	_, _ = rng.Read(g.data[:changed*blob.MaxFrameSize])
	next := g.encode(t, func(o blob.EncodeOptions, sink blob.FrameSink) (*blob.Index, error) {
		o.Parent = g.tip
		changes := blob.Compare(source{bytes.NewReader(slices.Clone(g.data))}, source{bytes.NewReader(before)}, o.Size)
		return blob.EncodeChanges(context.Background(), changes, o, sink)
	})
	mustPush(t, r, request(idA, "v1", next), next)
	r.lastTrafficNanos.Store(0) // a squash is slower right after a push
	return g
}

// images returns the number of layers of the newest version of template idA.
func images(t *testing.T, r *Registry) int {
	t.Helper()
	d, err := r.TemplateDetail(idA)
	must(t, err)
	return len(d.Versions[len(d.Versions)-1].Images)
}

// TestShareOfLiveBytes: a chain is squashed when less than minLivePercent percent of its bytes are not overwritten,
// and not when exactly that share is.
func TestShareOfLiveBytes(t *testing.T) {
	for name, c := range map[string]struct{ frames, changed, squashed int }{
		"3 of 5 frames": {3, 2, 0},
		"4 of 7 frames": {4, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, t.TempDir(), newClock())
			g := overwritten(t, r, c.frames, c.changed)
			if n, err := r.SquashChains(t.Context()); n != c.squashed || err != nil || images(t, r) != 2-c.squashed {
				t.Errorf("%d chains squashed, %v; %d layers", n, err, images(t, r))
			}
			if !bytes.Equal(assemble(t, r, idA, "v1"), g.data) {
				t.Error("another disk")
			}
		})
	}
}

// TestSquashReadsOnlyChains: a squash reads neither disks of one layer nor saved states: damage there does not
// concern it.
func TestSquashReadsOnlyChains(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	disk, state := makeContent("disk", api.FileDisk, "a"), makeContent("memory", api.FileState, "m")
	mustPush(t, r, request(idA, "v1", disk, state), disk, state)
	for dir, c := range map[string]content{layout.ImagesDir: disk, layout.StateFileDir: state} {
		must(t, os.Truncate(filepath.Join(base, dir, c.root()+layout.LayerSuffix), 10))
	}
	if n, err := r.SquashChains(t.Context()); n != 0 || err != nil {
		t.Errorf("%d chains squashed, %v", n, err)
	}
}

// TestFailedSquash: a squash that cannot write the template reports it and changes no version. It is not tried
// again until the template has had another newest version.
func TestFailedSquash(t *testing.T) {
	base := t.TempDir()
	r, s := openFailing(t, base)
	g := overwritten(t, r, 4, 3)
	c := newSquasher(r)
	s.failAt("template.sync")
	if err := c.squashRound(t.Context()); !errors.Is(err, errSync) || c.squashed != 0 {
		t.Errorf("%d chains squashed, %v", c.squashed, err)
	}
	check := func(layers, done int) {
		t.Helper()
		if images(t, r) != layers || c.squashed != done || !bytes.Equal(assemble(t, r, idA, "v1"), g.data) {
			t.Errorf("%d layers after %d squashes, want %d after %d", images(t, r), c.squashed, layers, done)
		}
		must(t, verifyAll(r))
		r.lastTrafficNanos.Store(0)
	}
	check(2, 0)
	must(t, c.squashRound(t.Context()))
	check(2, 0)

	other := makeContent("disk", api.FileDisk, "other")
	mustPush(t, r, request(idA, "v2", other), other)
	r.lastTrafficNanos.Store(0)
	must(t, c.squashRound(t.Context()))
	number := 2
	must(t, r.Revert(t.Context(), VersionRef{ID: idA, Number: &number}))
	must(t, c.squashRound(t.Context()))
	check(1, 1)
}
