package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/transfer/peerqueue"
)

// pullConnections is the number of connections of a pull.
const pullConnections = 4

// peerConnections is the number of connections of a pull with peers that prefer peers. Two more prefer the registry, so
// that what no node has yet comes to the first one while nodes exchange the rest.
const (
	peerConnections     = 4
	registryConnections = 2
)

// Manifest returns the manifest of a version. It counts as a pull.
func (c *Client) Manifest(ctx context.Context, ref VersionRef) (api.PullManifest, error) {
	return c.getManifest(ctx, ref.query())
}

// PeekManifest returns the manifest of a version without a pull.
func (c *Client) PeekManifest(ctx context.Context, ref VersionRef) (api.PullManifest, error) {
	query := ref.query()
	query.Set("look", "true")
	return c.getManifest(ctx, query)
}

func (c *Client) getManifest(ctx context.Context, query url.Values) (m api.PullManifest, err error) {
	call := apiCall{method: http.MethodGet, path: "/registry/v2/pull", query: query, result: &m, idempotent: true}
	if m, ok := c.askMirror(ctx, call); ok {
		return m, nil
	}
	err = c.doCall(ctx, call)
	c.preferMirror(m)
	return m, err
}

// Pull builds a version in a directory. When it returns without an error every file has its final name and is
// on stable storage. After an interruption, another call with the same directory resumes it.
func (c *Client) Pull(ctx context.Context, o PullOptions) (PullResult, error) {
	m, err := c.Manifest(ctx, o.Ref)
	if err != nil {
		return PullResult{}, err
	}
	if err := checkManifest(m); err != nil {
		return PullResult{}, err
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return PullResult{}, fmt.Errorf("pull: %w", err)
	}
	p := &pull{client: c, opts: o, dir: root, storage: stableStorage{o.Sync}}
	err = p.run(ctx, m)
	err = errors.Join(err, p.close(), root.Close())
	if err != nil {
		return p.transferred(), fmt.Errorf("pull %s %s: %w", m.Name, m.Version.Tag, err)
	}
	result := p.transferred()
	result.Manifest, result.Files = m, p.builtFiles
	return result, nil
}

// checkManifest refuses harmful names, and forms that this client cannot build.
func checkManifest(m api.PullManifest) error {
	seen := map[string]bool{ConfigFile: true, NVRAMFile: true}
	for _, f := range m.Files {
		if !layout.ValidFileName(f.Name) || seen[f.Name] {
			return fmt.Errorf("the registry returned an invalid file name %q", f.Name)
		}
		seen[f.Name] = true
		if err := checkPullLayers(f); err != nil {
			return err
		}
	}
	return nil
}

// pull is one call of Pull.
type pull struct {
	client           *Client
	opts             PullOptions
	dir              *os.Root
	storage          stableStorage
	targets          []*pullTarget // files to transfer
	builtFiles       []BuiltFile
	progress         *progressMeter
	transferredBytes atomic.Int64 // from the registry
	peerBytes        atomic.Int64 // from peers
	registryPace     pace
}

// transferred returns a result with what was transferred so far.
func (p *pull) transferred() PullResult {
	return PullResult{TransferredBytes: p.transferredBytes.Load(), PeerBytes: p.peerBytes.Load()}
}

func (p *pull) close() error {
	var err error
	for _, t := range p.targets {
		err = errors.Join(err, t.close())
	}
	return err
}

// run fetches everything.
func (p *pull) run(ctx context.Context, m api.PullManifest) error {
	total, err := p.openTargets(ctx, m)
	if err != nil {
		return err
	}
	p.progress = newProgressMeter(p.opts.Progress, total)
	if err := p.fetchFrames(ctx); err != nil {
		return err
	}
	if err := p.writeSettings(m); err != nil {
		return err
	}
	if err := p.renameFinished(func() error { return nil }); err != nil {
		return err
	}
	p.progress.finish()
	return nil
}

// openTargets links the files that are here, and opens those to transfer. It returns the bytes of their frames.
func (p *pull) openTargets(ctx context.Context, m api.PullManifest) (total int64, err error) {
	for _, f := range m.Files {
		if p.linkLocal(f) {
			p.builtFiles = append(p.builtFiles,
				BuiltFile{Name: f.Name, Form: FormLinked, ChainID: chainIDOf(topLayer(f))})
			continue
		}
		t, err := p.openTarget(ctx, f)
		if t != nil {
			p.targets = append(p.targets, t)
		}
		if err != nil {
			return 0, err
		}
		p.builtFiles = append(p.builtFiles, t.builtFile)
		total += t.plan.FetchBytes()
	}
	if p.opts.OnPartial != nil {
		p.opts.OnPartial(newPartial(p.targets))
	}
	return total, nil
}

// writeSettings writes the configuration and the NVRAM of a version.
func (p *pull) writeSettings(m api.PullManifest) error {
	for name, data := range map[string][]byte{ConfigFile: m.Config, NVRAMFile: m.NVRAM} {
		if name == NVRAMFile && len(data) == 0 {
			continue
		}
		if err := p.storage.writeFile(p.dir, name, data); err != nil {
			return err
		}
	}
	return nil
}

// fetchFrames transfers the missing frames of all files over a few connections.
func (p *pull) fetchFrames(ctx context.Context) error {
	var spans []fetchSpan
	for _, t := range p.targets {
		p.progress.addSkipped(t.doneBytes())
		spans = append(spans, t.missingSpans()...)
	}
	group, fetchCtx := errgroup.WithContext(ctx)
	if p.opts.Peers != nil {
		p.startPeerFetchers(fetchCtx, group, queueForPeers(p.opts.Peers, spans))
	} else {
		p.startFetchers(fetchCtx, group, spans)
	}
	err := group.Wait()
	for _, t := range p.targets {
		// Also after a failure: verified frames need not be fetched again.
		err = errors.Join(err, t.checkpoint())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// startPeerFetchers starts the connections of a pull with peers.
func (p *pull) startPeerFetchers(ctx context.Context, group *errgroup.Group, q *peerqueue.Queue[peerSpan]) {
	for n := range registryConnections + peerConnections {
		group.Go(func() error {
			f := newFetcher(p)
			for {
				s, from, ok, err := q.Next(ctx, n < registryConnections)
				if err != nil || !ok {
					return err
				}
				if from == peerqueue.Registry {
					if err := f.fetch(ctx, s.fetchSpan); err != nil {
						return err
					}
					continue
				}
				err = f.fetchFromPeer(ctx, s.fetchSpan)
				q.Done(s, err == nil)
				if _, fatal := errors.AsType[fatalError](err); fatal {
					return err
				}
			}
		})
	}
}

// startFetchers starts the connections of a pull from the registry alone.
func (p *pull) startFetchers(ctx context.Context, group *errgroup.Group, spans []fetchSpan) {
	var mu sync.Mutex
	next := func() (s fetchSpan, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(spans) == 0 {
			return s, false
		}
		s, spans = spans[0], spans[1:]
		return s, true
	}
	for range pullConnections {
		group.Go(func() error {
			f := newFetcher(p)
			for {
				s, ok := next()
				if !ok {
					return nil
				}
				if err := f.fetch(ctx, s); err != nil {
					return err
				}
			}
		})
	}
}

// renameFinished renames the files to their final names. It removes the journals last, so that after a crash they
// prove that a file with its final name is complete. complete is called before.
func (p *pull) renameFinished(complete func() error) error {
	for _, t := range p.targets {
		if err := t.renameFinal(); err != nil {
			return err
		}
	}
	if err := p.storage.syncDir(p.dir); err != nil {
		return err
	}
	if err := complete(); err != nil {
		return err
	}
	for _, t := range p.targets {
		if err := t.removeJournal(); err != nil {
			return err
		}
	}
	return p.storage.syncDir(p.dir)
}

// renameEarly renames the files to their final names before the pull ends. Their journals stay until then, and they
// stay open for other nodes.
func (p *pull) renameEarly() error {
	for _, t := range p.targets {
		if err := t.renameFinal(); err != nil {
			return err
		}
		t.file, t.early = nil, t.file // a target that is finished
	}
	return p.storage.syncDir(p.dir)
}

// stableStorage syncs files and directories.
type stableStorage struct {
	syncOverride func(*os.File) error // see PullOptions.Sync
}

// sync syncs an open file or directory.
func (s stableStorage) sync(f *os.File) error { return s.syncWith(f, (*os.File).Sync) }

// syncWith is sync with another system call.
func (s stableStorage) syncWith(f *os.File, sync func(*os.File) error) error {
	if s.syncOverride != nil {
		return s.syncOverride(f)
	}
	return sync(f)
}

func (s stableStorage) syncDir(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(s.sync(d), d.Close())
}

func (s stableStorage) writeFile(dir *os.Root, name string, data []byte) error {
	f, err := dir.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = s.sync(f)
	}
	return errors.Join(err, f.Close())
}
