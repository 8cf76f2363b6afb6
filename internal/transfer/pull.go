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
)

// pullParallel is the number of connections of a pull.
const pullParallel = 4

// Manifest returns the manifest of a version. It counts as a pull.
func (c *Client) Manifest(ctx context.Context, ref Ref) (api.PullManifest, error) {
	return c.manifest(ctx, ref.query())
}

// Look returns the manifest of a version without a pull.
func (c *Client) Look(ctx context.Context, ref Ref) (api.PullManifest, error) {
	query := ref.query()
	query.Set("look", "true")
	return c.manifest(ctx, query)
}

func (c *Client) manifest(ctx context.Context, query url.Values) (m api.PullManifest, err error) {
	err = c.call(ctx, call{method: http.MethodGet, path: "/registry/v2/pull", query: query, out: &m, repeatable: true})
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
	p := &pull{c: c, o: o, dir: root, disk: stableStorage{o.Sync}}
	err = p.run(ctx, m)
	err = errors.Join(err, p.close(), root.Close())
	if err != nil {
		return PullResult{Bytes: p.moved.Load()}, fmt.Errorf("pull %s %s: %w", m.Name, m.Version.Tag, err)
	}
	return PullResult{Manifest: m, Bytes: p.moved.Load(), Files: p.built}, nil
}

// checkManifest refuses harmful names, and forms that this client cannot build.
func checkManifest(m api.PullManifest) error {
	seen := map[string]bool{ConfigFile: true, NVRAMFile: true}
	for _, f := range m.Files {
		if !layout.ValidFileName(f.Name) || seen[f.Name] {
			return fmt.Errorf("the registry returned an invalid file name %q", f.Name)
		}
		seen[f.Name] = true
		if err := checkLayers(f); err != nil {
			return err
		}
	}
	return nil
}

// pull is one call of Pull.
type pull struct {
	c     *Client
	o     PullOptions
	dir   *os.Root
	disk  stableStorage
	files []*target // files to transfer
	built []BuiltFile
	meter *meter
	moved atomic.Int64 // bytes
}

func (p *pull) close() error {
	var err error
	for _, t := range p.files {
		err = errors.Join(err, t.close())
	}
	return err
}

// run fetches everything.
func (p *pull) run(ctx context.Context, m api.PullManifest) error {
	var total int64
	for _, f := range m.Files {
		if p.link(f) {
			p.built = append(p.built, BuiltFile{Name: f.Name, Form: FormLinked, Tip: tipOf(topOf(f))})
			continue
		}
		t, err := p.open(ctx, f)
		if t != nil {
			p.files = append(p.files, t)
		}
		if err != nil {
			return err
		}
		p.built = append(p.built, t.built)
		total += t.plan.Bytes()
	}
	p.meter = newMeter(p.o.Progress, total)
	if err := p.fetch(ctx); err != nil {
		return err
	}
	for name, data := range map[string][]byte{ConfigFile: m.Config, NVRAMFile: m.NVRAM} {
		if name == NVRAMFile && len(data) == 0 {
			continue
		}
		if err := p.disk.write(p.dir, name, data); err != nil {
			return err
		}
	}
	if err := p.publish(); err != nil {
		return err
	}
	p.meter.finish()
	return nil
}

// fetch transfers the missing frames of all files over a few connections.
func (p *pull) fetch(ctx context.Context) error {
	var spans []span
	for _, t := range p.files {
		p.meter.skip(t.have())
		spans = append(spans, t.missing()...)
	}
	var mu sync.Mutex
	next := func() (s span, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(spans) == 0 {
			return s, false
		}
		s, spans = spans[0], spans[1:]
		return s, true
	}
	group, fetchCtx := errgroup.WithContext(ctx)
	for range pullParallel {
		group.Go(func() error {
			f := newFetcher(p)
			for {
				s, ok := next()
				if !ok {
					return nil
				}
				if err := f.fetch(fetchCtx, s); err != nil {
					return err
				}
			}
		})
	}
	err := group.Wait()
	for _, t := range p.files {
		// Also after a failure: verified frames need not be fetched again.
		err = errors.Join(err, t.checkpoint())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// publish renames the files to their final names. It removes the journals last, so that after a crash they
// prove that a file with its final name is complete.
func (p *pull) publish() error {
	for _, t := range p.files {
		if err := t.rename(); err != nil {
			return err
		}
	}
	if err := p.disk.syncDir(p.dir); err != nil {
		return err
	}
	for _, t := range p.files {
		if err := t.forget(); err != nil {
			return err
		}
	}
	return p.disk.syncDir(p.dir)
}

// stableStorage syncs files and directories.
type stableStorage struct {
	replaced func(*os.File) error // see PullOptions.Sync
}

// sync syncs an open file or directory.
func (s stableStorage) sync(f *os.File) error { return s.syncBy(f, (*os.File).Sync) }

// syncBy is sync with another system call.
func (s stableStorage) syncBy(f *os.File, sync func(*os.File) error) error {
	if s.replaced != nil {
		return s.replaced(f)
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

func (s stableStorage) write(dir *os.Root, name string, data []byte) error {
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
