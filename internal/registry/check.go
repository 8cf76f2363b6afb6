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
	if err := refuseLocalCopy(base); err != nil {
		return api.RegistryCheck{}, err
	}
	c := newChecker(dir, disk.New(dir), o)
	state, err := readScrubState(dir)
	if err != nil {
		return api.RegistryCheck{}, err
	}
	c.knownDamage = state.damagedLayers()
	return c.run(ctx)
}

// Check checks the storage while the registry runs.
func (r *Registry) Check(ctx context.Context, o CheckOptions) (api.RegistryCheck, error) {
	c := newChecker(r.dir, r.store, o)
	c.changesLock, c.knownDamage = &r.metadataMu, r.damagedLayers()
	report, err := c.run(ctx)
	for root, l := range c.layers {
		switch {
		case l.damaged:
			r.markDamaged(root, l.problem)
		case l.verified && l.problem == "" && c.knownDamage[root] != "":
			r.clearDamage(root)
		}
	}
	return report, err
}

// checker checks a storage and changes nothing. One goroutine uses it.
type checker struct {
	dir   *layout.Dir
	store blob.Store
	opts  CheckOptions
	// changesLock is locked while an apparent problem is checked again, so that nothing changes during the check. It
	// is nil if no other user of the storage exists.
	changesLock sync.Locker
	knownDamage map[blob.Digest]string // layers that were found damaged before, with the reason

	limiter      rateLimiter
	totalBytes   int64
	trashedFiles map[string]bool // names of layer files there
	layers       map[blob.Digest]*checkedLayer
	report       api.RegistryCheck
}

// checkedLayer are the results of the check of a layer file.
type checkedLayer struct {
	footer   blob.Footer
	size     int64
	kind     blob.Kind
	parent   blob.Digest
	chainID  blob.Digest
	problem  string // "" without one
	inTrash  bool   // a copy is in the trash
	verified bool   // all frames were read
	damaged  bool   // its bytes are wrong
}

func newChecker(dir *layout.Dir, store blob.Store, o CheckOptions) *checker {
	return &checker{
		dir: dir, store: store, opts: o, limiter: rateLimiter{rate: o.Rate}, layers: map[blob.Digest]*checkedLayer{},
		report: api.RegistryCheck{Findings: []api.RegistryFinding{}},
	}
}

func (c *checker) run(ctx context.Context) (api.RegistryCheck, error) {
	entries, err := c.dir.ReadDir(layout.TemplatesDir)
	if err != nil {
		return c.report, fmt.Errorf("read templates: %w", err)
	}
	if err := c.readTrash(); err != nil {
		return c.report, err
	}
	if err := c.estimateBytes(); err != nil {
		return c.report, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !e.IsDir() {
			continue
		}
		if err := c.checkTemplate(ctx, e.Name()); err != nil {
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
	c.report.Verified = c.limiter.doneBytes
	return c.report, nil
}

func (c *checker) readTrash() error {
	entries, err := c.dir.TrashEntries()
	c.trashedFiles = map[string]bool{}
	for _, e := range entries {
		c.trashedFiles[strings.TrimPrefix(e.OriginalName, disk.TrashedStatePrefix)] = true
	}
	return err
}

// estimateBytes sums the bytes that a deep check will read.
func (c *checker) estimateBytes() error {
	if !c.opts.Deep {
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
					if !seen[l.Digest] {
						seen[l.Digest] = true
						c.totalBytes += l.IndexOffset
					}
				}
			}
		}
	}
	return nil
}

// checkTemplate checks one template. An apparent problem is checked a second time while nothing changes: the first
// check may have run in the middle of a push's swap.
func (c *checker) checkTemplate(ctx context.Context, id string) error {
	seen, err := c.checkOnce(ctx, id)
	if err == nil && len(seen.findings) > 0 && c.changesLock != nil {
		c.changesLock.Lock()
		if err = c.readTrash(); err == nil {
			seen, err = c.checkOnce(ctx, id)
		}
		c.changesLock.Unlock()
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

func (s *templateCheck) addFinding(number int, loss bool, layer, format string, args ...any) {
	f := api.RegistryFinding{Template: s.id, Layer: layer, Problem: fmt.Sprintf(format, args...), Loss: loss}
	if number >= 0 {
		f.Version = &number
	}
	s.findings = append(s.findings, f)
}

// checkOnce reads a template and all that it names. An error means that the check itself cannot continue.
func (c *checker) checkOnce(ctx context.Context, id string) (*templateCheck, error) {
	s := &templateCheck{id: id}
	t, err := c.dir.Template(id)
	if err != nil {
		c.addUnreadable(s, err)
		return s, context.Cause(ctx)
	}
	s.templates = 1
	for i := range t.Versions {
		v := &t.Versions[i]
		s.versions++
		for j := range v.Files {
			if err := c.checkFile(ctx, s, v, &v.Files[j]); err != nil {
				return s, err
			}
		}
		c.checkDirectory(s, &t, v)
	}
	return s, nil
}

// addUnreadable returns the finding for a directory whose template cannot be read.
func (c *checker) addUnreadable(s *templateCheck, cause error) {
	place := layout.TemplatePath(s.id)
	entries, err := c.dir.ReadDir(place)
	switch {
	case errors.Is(err, fs.ErrNotExist): // deleted since then
	case !isTemplateID(s.id):
		s.addFinding(-1, false, "", "the directory is not a template's: its name is not a UUID")
	case err == nil && len(entries) == 0:
		s.addFinding(-1, false, "", "the directory is empty")
	case c.dir.HasOnlyStaged(s.id):
		s.addFinding(-1, false, "", "the directory holds what a push left that was cut")
	case errors.Is(cause, layout.ErrNewer):
		s.addFinding(-1, true, "", "%v", cause)
	default:
		s.addFinding(-1, true, "", "the template cannot be read: %s", layout.DescribeError(cause))
	}
}

func isTemplateID(name string) bool {
	id, ok := layout.ParseID(name)
	return ok && id == name
}

// checkFile checks the chain of one file.
func (c *checker) checkFile(ctx context.Context, s *templateCheck, v *layout.Version, f *layout.File) error {
	var below blob.Digest // tip of the layers below
	for i, l := range f.Layers {
		root, err := blob.ParseDigest(l.Digest)
		if err != nil {
			return err // layout has validated it
		}
		facts, err := c.checkLayer(ctx, root)
		if err != nil {
			return err
		}
		if facts.problem == "" {
			facts.problem = c.layerMismatch(f, l, facts)
		}
		switch {
		case facts.problem != "":
			s.addFinding(v.Number, !facts.inTrash, l.Digest, "layer file %s", facts.problem)
		case facts.parent != below:
			s.addFinding(v.Number, true, l.Digest,
				"the layer of file %s does not rest on the one below it (place %d of the chain)", f.Name, i)
		}
		below = facts.chainID
	}
	return nil
}

// layerMismatch describes how a layer file differs from its entry in the template; "" if it does not differ.
func (c *checker) layerMismatch(f *layout.File, l layout.Layer, facts *checkedLayer) string {
	switch {
	case facts.size != l.Size:
		return fmt.Sprintf("has %d bytes, the template records %d", facts.size, l.Size)
	case facts.footer.IndexOffset != l.IndexOffset || facts.footer.IndexLength != l.IndexLength:
		return "has its index elsewhere than the template records"
	case facts.chainID.String() != l.ChainID():
		return "has another chain ID than the template records"
	case (facts.kind == blob.KindState) != (f.Kind == layout.KindState):
		return "is of another kind than its file"
	}
	return ""
}

// checkLayer checks a layer file once. A file that could not be read is checked again.
func (c *checker) checkLayer(ctx context.Context, root blob.Digest) (*checkedLayer, error) {
	if l := c.layers[root]; l != nil && (l.problem == "" || l.damaged) {
		return l, nil
	}
	l := &checkedLayer{}
	c.layers[root] = l
	err := c.readLayer(ctx, root, l)
	switch {
	case err == nil:
	case context.Cause(ctx) != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, fs.ErrNotExist):
		l.problem = "is missing"
		if l.inTrash = c.trashedFiles[root.String()+layout.LayerSuffix]; l.inTrash {
			l.problem = "is in the trash"
		}
	default:
		l.problem, l.damaged = damageText(err), isDamage(err)
	}
	if before := c.knownDamage[root]; l.problem == "" && !l.verified && before != "" {
		l.problem, l.damaged = before, true
	}
	return l, nil
}

// damageText describes the damage of a layer that could not be read.
func damageText(err error) string { return fmt.Sprintf("is damaged: %v", err) }

// isDamage reports whether bytes are wrong or the disk cannot read them, in contrast to temporary failures.
func isDamage(err error) bool { return isCorrupt(err) || errors.Is(err, syscall.EIO) }

func (c *checker) readLayer(ctx context.Context, root blob.Digest, l *checkedLayer) (err error) {
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
	l.footer, l.kind, l.parent, l.chainID = x.Footer(), x.Kind(), x.Parent(), x.ChainID()
	if !c.opts.Deep {
		return nil
	}
	c.limiter.onFrame = func(int) {
		if c.opts.Progress != nil {
			p := c.limiter.progress(c.totalBytes)
			p.Layer = len(c.layers)
			c.opts.Progress(p)
		}
	}
	err = verifyFrames(ctx, f, layer, 0, &c.limiter)
	l.verified = err == nil
	return err
}

// verifyFrames reads the frames of a layer from the disk, at the rate of p, beginning with the frame first.
func verifyFrames(ctx context.Context, f blob.File, layer *blob.Layer, first int, p *rateLimiter) error {
	var room blob.FrameBuffer
	for i := first; i < layer.Index().FrameCount(); i++ {
		frame := layer.Index().Frame(i)
		if err := p.wait(ctx, frame.StoredSize); err != nil {
			return err
		}
		disk.DropPageCache(f, frame.Offset, int64(frame.StoredSize)) // reread from the disk, not from the page cache
		if err := layer.CheckFrame(i, &room); err != nil {
			return err
		}
		disk.DropPageCache(f, frame.Offset, int64(frame.StoredSize))
		p.onFrame(i)
	}
	return nil
}

// checkDirectory checks the files next to the layers.
func (c *checker) checkDirectory(s *templateCheck, t *layout.Template, v *layout.Version) {
	config, err := c.dir.Config(t.ID, v)
	if err != nil {
		s.addFinding(v.Number, true, "", "the configuration cannot be read: %v", err)
		return
	}
	nvram, err := c.dir.NVRAM(t.ID, v)
	if err != nil {
		s.addFinding(v.Number, true, "", "the nvram cannot be read: %v", err)
		return
	}
	if computeContentID(config, v.Files, nvram) != v.ContentID {
		s.addFinding(v.Number, false, "",
			"the configuration or the nvram is not what was pushed: it was changed in place")
	}
	if c.dir.IsUncommitted(t.ID, v) {
		s.addFinding(v.Number, false, "", "the directory was not moved to its place")
		return
	}
	stale, err := c.dir.StaleListFiles(t.ID, v)
	if err != nil {
		s.addFinding(v.Number, false, "", "its text files cannot be read: %v", err)
	}
	if len(stale) > 0 {
		slices.Sort(stale)
		s.addFinding(v.Number, false, "", "the text files %s do not name the version's layers",
			strings.Join(stale, " and "))
	}
}
