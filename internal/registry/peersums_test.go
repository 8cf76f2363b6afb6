package registry

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

func openWithPeerSums(t *testing.T, base string, sums bool) *Registry {
	t.Helper()
	r, err := Open(t.Context(), Options{Base: base, Now: newClock().Now, PeerSums: sums})
	must(t, err)
	t.Cleanup(func() { _ = r.Close() }) // a test may close it before
	return r
}

// withWrongSum returns a file whose index has a wrong sum of its first decoded frame, and is right otherwise.
func withWrongSum(t *testing.T, c content) content {
	t.Helper()
	b := blob.NewBuilder(blob.EncodeOptions{Kind: c.index.Kind(), Size: c.index.ContentSize()})
	for i := range c.index.FrameCount() {
		var runs []blob.Run
		for r := range c.index.Runs(i) {
			runs = append(runs, r)
		}
		f := c.index.Frame(i)
		if i == 0 {
			if f.Codec != blob.CodecZstdSummed {
				t.Fatalf("the frame has codec %d", f.Codec)
			}
			f.RawSum = sha256.Sum256([]byte("other bytes"))
		}
		b.Add(f, runs)
	}
	var err error
	c.index, err = b.Index()
	must(t, err)
	return c
}

// TestPeerSums: a registry accepts sums of decoded frames only if it wants them, and only right ones. It accepts layers
// without, which older programs push.
func TestPeerSums(t *testing.T) {
	plain, summed := makeContent("disk", api.FileDisk, "a"), makeContentAs("disk", api.FileDisk, "a", true)
	for _, wants := range []bool{false, true} {
		r := openWithPeerSums(t, t.TempDir(), wants)
		s, err := r.Negotiate(t.Context(), request(idA, "v1", plain))
		must(t, err)
		if s.PeerSums != wants {
			t.Errorf("a registry with PeerSums %v tells clients %v", wants, s.PeerSums)
		}
		mustPush(t, r, request(idA, "v1", plain), plain)
		_, err = push(r, request(idA, "v2", summed), summed)
		if (err == nil) != wants || !wants && farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("PeerSums %v, a layer with sums: %v", wants, err)
		}
		wrong := withWrongSum(t, makeContentAs("disk", api.FileDisk, "b", true))
		if _, err = push(r, request(idA, "v3", wrong), wrong); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("PeerSums %v, a layer with a wrong sum: %v", wants, err)
		}
		must(t, verifyAll(r))
	}
}

// TestPeerSumsOfAnEarlierProcess: sums of frames that were received before a restart are compared, too.
func TestPeerSumsOfAnEarlierProcess(t *testing.T) {
	right := makeContentAs("disk", api.FileDisk, "a", true)
	for _, c := range []struct {
		content
		sums bool // after the restart
		want farm.Code
	}{{right, true, ""}, {withWrongSum(t, right), true, farm.CodeInvalid}, {right, false, farm.CodeInvalid}} {
		base := t.TempDir()
		r := openWithPeerSums(t, base, true)
		s, err := r.Negotiate(t.Context(), request(idA, "v1", c.content))
		must(t, err)
		must(t, r.PutPart(t.Context(), s.Session, "disk", 0, c.part()))
		must(t, r.Close())
		r = openWithPeerSums(t, base, c.sums)
		must(t, r.PutIndex(t.Context(), s.Session, "disk", c.root(), bytes.NewReader(c.index.Encoded())))
		_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: map[string]string{"disk": c.root()}})
		if err != nil && c.want == "" || farm.CodeOf(err) != c.want && c.want != "" {
			t.Errorf("sums %v: %v, want %q", c.sums, err, c.want)
		}
	}
}
