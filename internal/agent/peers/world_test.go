package peers_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/peers"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/transfer"
)

const diskName = "disk.img"

// world is a registry with one version, a controller that names all nodes, and nodes.
type world struct {
	t       *testing.T
	client  *transfer.Client
	key     cloudkey.Key
	ref     cache.Ref
	disk    []byte
	layers  atomic.Int64 // bytes of layers that the registry has sent
	oneCopy int64        // of them, for one pull
	tip     string       // chain ID of the disk
	pace    *time.Ticker // of the writes of the registry; nil: as fast as it can

	mu    sync.Mutex
	nodes []*node
}

// node is a node with a cache, a server and the reading side.
type node struct {
	id       string
	identity *peers.Identity
	excluded *peers.Exclusions
	server   *peers.Server
	source   *cache.Registry
	cache    *cache.Cache
	address  string
	stop     context.CancelFunc
	pulling  atomic.Bool
	// claimsAll has the controller name it as a node that has everything.
	claimsAll bool
	partial   atomic.Pointer[transfer.Partial] // of a lazy pull
}

func newWorld(t *testing.T, size int) *world {
	t.Helper()
	return newWorldWith(t, size, true)
}

// newWorldWith is newWorld; sums: the registry wants the sums by which nodes verify what they read from each other.
func newWorldWith(t *testing.T, size int, sums bool) *world {
	t.Helper()
	w := &world{t: t, disk: make([]byte, size)}
	var err error
	if w.key, err = cloudkey.New(); err != nil {
		t.Fatal(err)
	}
	core, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "test", PeerSums: sums})
	if err != nil {
		t.Fatal(err)
	}
	h := rest.Handler(registryrest.Routes(core), slog.New(slog.DiscardHandler))
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			rw = &countingWriter{rw, w}
		}
		h.ServeHTTP(rw, r)
	}))
	client, err := transfer.New(transfer.Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
		_ = core.Close()
	})
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(w.disk[:size/2])
	copy(w.disk[size/2:], strings.Repeat("what compresses well ", size/2/21))
	w.client, w.ref = client, cache.Ref{Registry: server.URL, Name: "debian", Tag: "v1"}
	w.push(nil)
	return w
}

// push pushes the disk as the version of w.ref, and returns the path of its file.
func (w *world) push(parent *transfer.PushParent) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), diskName)
	if err := os.WriteFile(path, w.disk, 0o600); err != nil {
		w.t.Fatal(err)
	}
	config, err := json.Marshal(api.TemplateConfig{
		RAM: "1G", HardDrives: []api.ConfigDrive{{File: diskName, Format: "raw"}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	disk := &diskfile.Disk{Path: path, Format: diskfile.FormatRaw}
	digests := map[string]string{}
	pushed, err := w.client.Push(w.t.Context(), transfer.PushOptions{
		Request:      api.PushRequest{ID: w.ref.TemplateID, Name: w.ref.Name, Tag: w.ref.Tag, Config: config},
		LayerDigests: digests,
		Files: []transfer.PushFile{
			{Name: diskName, Path: path, Kind: api.FileDisk, Format: "raw", Disk: disk, Parent: parent},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.ref.TemplateID, w.ref.ContentID = pushed.ID, pushed.ContentID
	w.tip = digests[diskName]
	return path
}

// countingWriter counts the bytes of a body.
type countingWriter struct {
	http.ResponseWriter
	world *world
}

func (c *countingWriter) Write(p []byte) (int, error) {
	if c.world.pace != nil {
		<-c.world.pace.C
	}
	n, err := c.ResponseWriter.Write(p)
	c.world.layers.Add(int64(n))
	return n, err
}

// addNode adds a node. wrap changes what it serves; nil: nothing.
func (w *world) addNode(wrap func(peers.Provider) peers.Provider, rate int64) *node {
	w.t.Helper()
	n := &node{excluded: &peers.Exclusions{}}
	var err error
	if n.identity, err = peers.LoadIdentity(filepath.Join(w.t.TempDir(), "peer.pem")); err != nil {
		w.t.Fatal(err)
	}
	n.source = cache.NewRegistry(transfer.Options{}, nil)
	n.source.UsePeers(func(ctx context.Context, contentID string) (transfer.Peers, func()) {
		n.pulling.Store(true)
		s := peers.OpenReader(ctx, peers.ReaderOptions{
			NodeID: n.id, ContentID: contentID, Identity: n.identity, Excluded: n.excluded,
			Logger: slog.New(slog.DiscardHandler), Sources: func(context.Context) ([]api.Peer, error) {
				return w.peersOf(n, contentID), nil
			},
		})
		return s, s.Close
	})
	dir := w.t.TempDir()
	if n.cache, err = cache.Open(cache.Options{Dir: dir, Source: n.source}); err != nil {
		w.t.Fatal(err)
	}
	var provider peers.Provider = n.cache
	if wrap != nil {
		provider = wrap(provider)
	}
	n.server = peers.NewServer(peers.ServerOptions{
		Identity: n.identity, Provider: provider, CloudKey: w.key.Public, Rate: rate,
	})
	l, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	n.address = l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(ctx, l) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			w.t.Error(err)
		}
		if err := n.cache.Close(); err != nil {
			w.t.Error(err)
		}
		_ = n.source.Close()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	n.id = fmt.Sprintf("node-%d", len(w.nodes))
	w.nodes = append(w.nodes, n)
	return n
}

// peersOf is what the controller answers.
func (w *world) peersOf(reader *node, contentID string) (list []api.Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		complete := n.claimsAll || n.cache.Has(contentID)
		if n == reader || !complete && !n.pulling.Load() {
			continue
		}
		list = append(list, api.Peer{
			NodeID: n.id, Address: n.address, Key: n.identity.Key(), Pulling: !complete,
			Token: w.token(reader, n, contentID, time.Minute),
		})
	}
	return list
}

func (w *world) token(reader, server *node, contentID string, life time.Duration) string {
	return w.key.SignPeerToken(cloudkey.PeerPermit{
		ContentID: contentID, Reader: reader.identity.Key(), Server: server.identity.Key(),
	}, time.Now().Add(life))
}

// pull pulls the version to a node and compares its disk.
func (w *world) pull(n *node) error {
	n.cache.Pin(w.ref.ContentID, "test")
	if err := n.cache.Fetch(w.t.Context(), w.ref, nil); err != nil {
		return err
	}
	v, err := n.cache.Version(w.ref.ContentID)
	if err != nil {
		return err
	}
	open, err := v.Disks[diskName].Open()
	if err != nil {
		return err
	}
	defer open.Close()
	got := make([]byte, len(w.disk))
	if _, err := open.ReadAt(got, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if sha256.Sum256(got) != sha256.Sum256(w.disk) {
		return fmt.Errorf("%s has another disk than was pushed", n.id)
	}
	return nil
}

// firstPull has the first node pull everything from the registry.
func (w *world) firstPull(n *node) {
	w.t.Helper()
	if err := w.pull(n); err != nil {
		w.t.Fatal(err)
	}
	w.oneCopy = w.layers.Swap(0)
}

// changedProvider serves something else than is there.
type changedProvider struct {
	peers.Provider
	open func(io.ReadCloser) (io.ReadCloser, error)
	wait bool
}

func (p changedProvider) OpenRuns(ctx context.Context, id, file string, runs []blob.Run) (io.ReadCloser, error) {
	r, err := p.Provider.OpenRuns(ctx, id, file, runs)
	if err != nil || p.open == nil {
		return r, err
	}
	return p.open(r)
}

func (p changedProvider) GuestsWait() bool { return p.wait || p.Provider.GuestsWait() }

// partialProvider serves what a lazy pull has.
type partialProvider struct {
	peers.Provider
	node func() *node
}

func (p partialProvider) Holding(context.Context, string) (transfer.Holding, bool) {
	partial := p.node().partial.Load()
	if partial == nil {
		return transfer.Holding{}, false
	}
	return partial.Holding(), true
}

func (p partialProvider) OpenRuns(_ context.Context, _, file string, runs []blob.Run) (io.ReadCloser, error) {
	return p.node().partial.Load().OpenRuns(file, runs)
}
