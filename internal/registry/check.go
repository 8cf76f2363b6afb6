package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/disk"
	"github.com/buildyard/buildyard/internal/layout"
)

// CheckOptions configures a check of a storage.
type CheckOptions struct {
	Deep     bool                         // read and verify every frame of every layer
	Rate     int64                        // bytes a second of a deep check; 0: no bound
	Progress func(api.StorageJobProgress) // nil, or called often while it runs
}

// CheckStorage checks a storage that no registry has open, and changes nothing in it.
func CheckStorage(ctx context.Context, base string, o CheckOptions) (api.RegistryCheck, error) {
	dir, err := layout.Open(base)
	if err != nil {
		return api.RegistryCheck{}, err
	}
	defer func() { _ = dir.Close() }() // nothing was written
	lock, err := lockStorage(base, "")
	if err != nil {
		return api.RegistryCheck{}, err
	}
	defer func() { _ = lock.Close() }()
	c := newChecker(dir, disk.New(dir), o)
	state, err := readScrub(dir)
	if err != nil {
		return api.RegistryCheck{}, err
	}
	c.known = state.damaged()
	return c.run(ctx)
}

// Check checks the storage while the registry runs.
func (r *Registry) Check(ctx context.Context, o CheckOptions) (api.RegistryCheck, error) {
	c := newChecker(r.dir, r.store, o)
	c.still, c.known = &r.write, r.knownDamage()
	report, err := c.run(ctx)
	for root, l := range c.layers {
		switch {
		case l.damaged:
			r.markDamaged(root, l.problem)
		case l.verified && l.problem == "" && c.known[root] != "":
			r.clearDamage(root)
		}
	}
	return report, err
}

// checker checks a storage and changes nothing. One goroutine uses it.
type checker struct {
	dir   *layout.Dir
	store blob.Store
	o     CheckOptions
	// still is locked while an apparent problem is checked again, so that nothing changes during the check. It
	// is nil if no other user of the storage exists.
	still sync.Locker
	known map[blob.Digest]string // layers that were found damaged before, with the reason

	pace   rateLimiter
	total  int64
	trash  map[string]bool // names of layer files there
	layers map[blob.Digest]*layerFacts
	report api.RegistryCheck
}

// layerFacts are the results of the check of a layer file.
type layerFacts struct {
	foot     blob.Footer
	size     int64
	kind     blob.Kind
	parent   blob.Digest
	tip      blob.Digest
	problem  string // "" without one
	curable  bool   // a copy is in the trash
	verified bool   // all frames were read
	damaged  bool   // its bytes are wrong
}

func newChecker(dir *layout.Dir, store blob.Store, o CheckOptions) *checker {
	return &checker{
		dir: dir, store: store, o: o, pace: rateLimiter{rate: o.Rate}, layers: map[blob.Digest]*layerFacts{},
		report: api.RegistryCheck{Findings: []api.RegistryFinding{}},
	}
}

func (c *checker) run(ctx context.Context) (api.RegistryCheck, error) {
	entries, err := c.dir.Names(layout.VMDir)
	if err != nil {
		return c.report, fmt.Errorf("read templates: %w", err)
	}
	if err := c.readTrash(); err != nil {
		return c.report, err
	}
	if err := c.estimate(); err != nil {
		return c.report, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !e.IsDir() {
			continue
		}
		if err := c.template(ctx, e.Name()); err != nil {
			return c.report, err
		}
	}
	for _, l := range c.layers {
		c.report.Layers++
		c.report.Bytes += l.size
	}
	for _, f := range c.report.Findings {
		if f.Loss {
			c.report.Lost++
		}
	}
	c.report.Verified = c.pace.done
	return c.report, nil
}

func (c *checker) readTrash() error {
	entries, err := c.dir.Trash()
	c.trash = map[string]bool{}
	for _, e := range entries {
		c.trash[strings.TrimPrefix(e.Name, disk.StateMark)] = true
	}
	return err
}

// estimate sums the bytes that a deep check will read.
func (c *checker) estimate() error {
	if !c.o.Deep {
		return nil
	}
	templates, _, err := c.dir.Templates()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range templates {
		for _, v := range templates[i].Versions {
			for _, f := range v.Files {
				for _, l := range f.Layers {
					if !seen[l.Root] {
						seen[l.Root] = true
						c.total += l.IndexOffset
					}
				}
			}
		}
	}
	return nil
}

// template checks one template. An apparent problem is checked a second time while nothing changes: the first
// check may have run in the middle of a push's swap.
func (c *checker) template(ctx context.Context, id string) error {
	seen, err := c.look(ctx, id)
	if err == nil && len(seen.findings) > 0 && c.still != nil {
		c.still.Lock()
		if err = c.readTrash(); err == nil {
			seen, err = c.look(ctx, id)
		}
		c.still.Unlock()
	}
	if err != nil {
		return err
	}
	c.report.Templates += seen.templates
	c.report.Versions += seen.versions
	c.report.Findings = append(c.report.Findings, seen.findings...)
	return nil
}

// templateCheck is the result of one check of a template.
type templateCheck struct {
	id                  string
	templates, versions int
	findings            []api.RegistryFinding
}

func (s *templateCheck) add(number int, loss bool, layer, format string, args ...any) {
	f := api.RegistryFinding{Template: s.id, Layer: layer, Problem: fmt.Sprintf(format, args...), Loss: loss}
	if number >= 0 {
		f.Version = &number
	}
	s.findings = append(s.findings, f)
}

// look reads a template and all that it names. An error means that the check itself cannot continue.
func (c *checker) look(ctx context.Context, id string) (*templateCheck, error) {
	s := &templateCheck{id: id}
	t, err := c.dir.Template(id)
	if err != nil {
		c.unreadable(s, err)
		return s, context.Cause(ctx)
	}
	s.templates = 1
	for i := range t.Versions {
		v := &t.Versions[i]
		s.versions++
		for j := range v.Files {
			if err := c.file(ctx, s, v, &v.Files[j]); err != nil {
				return s, err
			}
		}
		c.directory(s, &t, v)
	}
	return s, nil
}

// unreadable returns the finding for a directory whose template cannot be read.
func (c *checker) unreadable(s *templateCheck, cause error) {
	place := layout.TemplatePath(s.id)
	entries, err := c.dir.Names(place)
	switch {
	case errors.Is(err, fs.ErrNotExist): // deleted since then
	case !isID(s.id):
		s.add(-1, false, "", "the directory is not a template's: its name is not a UUID")
	case err == nil && len(entries) == 0:
		s.add(-1, false, "", "the directory is empty")
	case c.dir.OnlyStaged(s.id):
		s.add(-1, false, "", "the directory holds what a push left that was cut")
	case errors.Is(cause, layout.ErrNewer):
		s.add(-1, true, "", "%v", cause)
	default:
		s.add(-1, true, "", "the template cannot be read: %s", layout.Problem(cause))
	}
}

func isID(name string) bool {
	id, ok := layout.ParseID(name)
	return ok && id == name
}

// file checks the chain of one file.
func (c *checker) file(ctx context.Context, s *templateCheck, v *layout.Version, f *layout.File) error {
	var below blob.Digest // tip of the layers below
	for i, l := range f.Layers {
		root, err := blob.ParseDigest(l.Root)
		if err != nil {
			return err // layout has validated it
		}
		facts, err := c.layer(ctx, root)
		if err != nil {
			return err
		}
		if facts.problem == "" {
			facts.problem = c.misfit(f, l, facts)
		}
		switch {
		case facts.problem != "":
			s.add(v.Number, !facts.curable, l.Root, "layer file %s", facts.problem)
		case facts.parent != below:
			s.add(v.Number, true, l.Root,
				"the layer of file %s does not rest on the one below it (place %d of the chain)", f.Name, i)
		}
		below = facts.tip
	}
	return nil
}

// misfit describes how a layer file differs from its entry in the template; "" if it does not differ.
func (c *checker) misfit(f *layout.File, l layout.Layer, facts *layerFacts) string {
	switch {
	case facts.size != l.Size:
		return fmt.Sprintf("has %d bytes, the template says %d", facts.size, l.Size)
	case facts.foot.IndexOffset != l.IndexOffset || facts.foot.IndexLength != l.IndexLength:
		return "has its index elsewhere than the template says"
	case facts.tip.String() != l.Name():
		return "stands for another chain than the template says"
	case (facts.kind == blob.KindState) != (f.Kind == layout.State):
		return "is of another kind than its file"
	}
	return ""
}

// layer checks a layer file once. A file that could not be read is checked again.
func (c *checker) layer(ctx context.Context, root blob.Digest) (*layerFacts, error) {
	if l := c.layers[root]; l != nil && (l.problem == "" || l.damaged) {
		return l, nil
	}
	l := &layerFacts{}
	c.layers[root] = l
	err := c.readLayer(ctx, root, l)
	switch {
	case err == nil:
	case context.Cause(ctx) != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, fs.ErrNotExist):
		l.problem = "is missing"
		if l.curable = c.trash[root.String()+layout.LayerSuffix]; l.curable {
			l.problem = "is in the trash"
		}
	default:
		l.problem, l.damaged = damageOf(err), isDamage(err)
	}
	if before := c.known[root]; l.problem == "" && !l.verified && before != "" {
		l.problem, l.damaged = before, true
	}
	return l, nil
}

// damageOf describes the damage of a layer that could not be read.
func damageOf(err error) string { return fmt.Sprintf("is damaged: %v", err) }

// isDamage reports whether bytes are wrong or the disk cannot read them, in contrast to temporary failures.
func isDamage(err error) bool { return isCorrupt(err) || errors.Is(err, syscall.EIO) }

func (c *checker) readLayer(ctx context.Context, root blob.Digest, l *layerFacts) (err error) {
	f, err := c.store.Open(ctx, root)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	l.size = st.Size()
	layer, err := blob.OpenLayer(f, l.size, root)
	if err != nil {
		return err
	}
	x := layer.Index()
	l.foot, l.kind, l.parent, l.tip = x.Footer(), x.Kind(), x.Parent(), x.ChainID()
	if !c.o.Deep {
		return nil
	}
	c.pace.passed = func(int) {
		if c.o.Progress != nil {
			p := c.pace.progress(c.total)
			p.Layer = len(c.layers)
			c.o.Progress(p)
		}
	}
	err = verify(ctx, f, layer, 0, &c.pace)
	l.verified = err == nil
	return err
}

// verify reads the frames of a layer from the disk, at the rate of p, beginning with the frame first.
func verify(ctx context.Context, f blob.File, layer *blob.Layer, first int, p *rateLimiter) error {
	var room blob.FrameBuffer
	for i := first; i < layer.Index().Len(); i++ {
		frame := layer.Index().Frame(i)
		if err := p.wait(ctx, frame.Stored); err != nil {
			return err
		}
		disk.Forget(f, frame.Offset, int64(frame.Stored)) // reread from the disk, not from the page cache
		if _, err := layer.ReadFrame(i, &room); err != nil {
			return err
		}
		disk.Forget(f, frame.Offset, int64(frame.Stored))
		p.passed(i)
	}
	return nil
}

// directory checks the files next to the layers.
func (c *checker) directory(s *templateCheck, t *layout.Template, v *layout.Version) {
	config, err := c.dir.Config(t.ID, v)
	if err != nil {
		s.add(v.Number, true, "", "the configuration cannot be read: %v", err)
		return
	}
	nvram, err := c.dir.NVRAM(t.ID, v)
	if err != nil {
		s.add(v.Number, true, "", "the nvram cannot be read: %v", err)
		return
	}
	if contentID(config, v.Files, nvram) != v.ContentID {
		s.add(v.Number, false, "", "the configuration or the nvram is not what was pushed: it was changed in place")
	}
	if c.dir.UncommittedVersions(t.ID, v) {
		s.add(v.Number, false, "", "the directory was not moved to its place")
		return
	}
	stale, err := c.dir.StaleLists(t.ID, v)
	if err != nil {
		s.add(v.Number, false, "", "its text files cannot be read: %v", err)
	}
	if len(stale) > 0 {
		slices.Sort(stale)
		s.add(v.Number, false, "", "the text files %s do not name the version's layers", strings.Join(stale, " and "))
	}
}
