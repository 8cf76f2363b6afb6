package peers_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/peers"
	"github.com/buildyard/buildyard/internal/transfer"
)

// fillLazily pulls the version for a node while a reader reads some parts of the disk, and compares both.
func (w *world) fillLazily(ctx context.Context, n *node) (result transfer.PullResult, err error) {
	others := peers.OpenReader(ctx, peers.ReaderOptions{
		NodeID: n.id, ContentID: w.ref.ContentID, Identity: n.identity, Excluded: n.excluded,
		Logger:  slog.New(slog.DiscardHandler),
		Sources: func(context.Context) ([]api.Peer, error) { return w.peersOf(n, w.ref.ContentID), nil },
	})
	defer others.Close()
	dir := w.t.TempDir()
	pull, err := w.client.OpenLazyPull(ctx, transfer.LazyOptions{
		MinBytes: 1, PullOptions: transfer.PullOptions{
			Ref: transfer.VersionRef{ID: w.ref.TemplateID, Tag: w.ref.Tag}, Dir: dir, Peers: others,
			OnPartial: n.partial.Store,
		},
	})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, pull.Close()) }()
	var group errgroup.Group
	group.Go(func() error {
		b := make([]byte, 5000)
		for off := int64(0); off+5000 < int64(len(w.disk)); off += int64(len(w.disk)) / 9 {
			zero, err := pull.Disks()[diskName].ReadAt(ctx, b, off)
			if err != nil {
				return err
			}
			if !zero && !bytes.Equal(b, w.disk[off:off+5000]) {
				w.t.Errorf("a guest of %s reads other bytes at %d than were pushed", n.id, off)
			}
		}
		return nil
	})
	result, err = pull.Run(ctx)
	if err := errors.Join(err, group.Wait()); err != nil {
		return result, err
	}
	got, err := os.ReadFile(filepath.Join(dir, diskName))
	if err == nil && sha256.Sum256(got) != sha256.Sum256(w.disk) {
		w.t.Errorf("%s has another disk than was pushed", n.id)
	}
	return result, err
}

// TestLazyPullsReadFromNodes: what a guest waits for and the rest come from a node that has the version, and not from
// one that lies.
func TestLazyPullsReadFromNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := newWorld(t, 24*mib)
	liar := w.addNode(func(p peers.Provider) peers.Provider {
		return changedProvider{Provider: p, open: func(r io.ReadCloser) (io.ReadCloser, error) {
			b, err := io.ReadAll(r)
			return io.NopCloser(bytes.NewReader(make([]byte, len(b)))), errors.Join(err, r.Close())
		}}
	}, 0)
	w.firstPull(liar)
	result, err := w.fillLazily(ctx, w.addNode(nil, 0))
	if err != nil {
		t.Fatal(err)
	}
	if result.PeerBytes != 0 || result.TransferredBytes == 0 {
		t.Errorf("with a liar: %d bytes from peers, %d from the registry", result.PeerBytes, result.TransferredBytes)
	}
	if err := w.pull(w.addNode(nil, 0)); err != nil {
		t.Fatal(err)
	}
	if result, err = w.fillLazily(ctx, w.addNode(nil, 0)); err != nil {
		t.Fatal(err)
	}
	if result.PeerBytes == 0 {
		t.Error("nothing was read from the node that has the version")
	}
}

// TestNodesShareALazyPull: nodes that fill a version at the same time serve what they have to each other.
func TestNodesShareALazyPull(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w := newWorld(t, 64*mib)
	w.firstPull(w.addNode(nil, 0))
	w.nodes = nil                                 // it is not there for the others
	w.pace = time.NewTicker(2 * time.Millisecond) // so that they have time to learn of each other
	var nodes []*node
	const count = 4
	for range count {
		var n *node
		n = w.addNode(func(p peers.Provider) peers.Provider {
			return partialProvider{p, func() *node { return n }}
		}, 0)
		n.pulling.Store(true)
		nodes = append(nodes, n)
	}
	var group errgroup.Group
	for _, n := range nodes {
		group.Go(func() error {
			_, err := w.fillLazily(ctx, n)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	var served int64
	for _, n := range nodes {
		served += n.server.Served()
	}
	t.Logf("%d nodes: the registry sent %.2f copies, nodes %d bytes", count,
		float64(w.layers.Load())/float64(w.oneCopy), served)
	if served == 0 {
		t.Error("nodes served nothing to each other")
	}
}
