package s3backend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/disk"
	"github.com/buildyard/buildyard/internal/blob/s3"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/layout/objects"
	"github.com/buildyard/buildyard/internal/s3store"
)

const (
	maxTemplateBytes = 64 << 20
	maxOwnerBytes    = 4 << 10
	maxFileBytes     = 256 << 20
)

// CopyProgress is the state of a copy.
type CopyProgress struct {
	Done, Total int64 // bytes of layers that the bucket did not have
}

// CopyReport is the result of a copy.
type CopyReport struct {
	Templates   int   `json:"templates"`
	Versions    int   `json:"versions"`
	Layers      int   `json:"layers"`       // that versions need
	Bytes       int64 `json:"bytes"`        // of them
	CopiedBytes int64 `json:"copied_bytes"` // that the bucket did not have
	Changed     int   `json:"changed"`      // templates that changed during the copy: another call copies them
}

// copier is one copy of a storage on disk into a bucket.
type copier struct {
	bucket *s3store.Bucket
	lease  *s3store.Lease
	dir    *layout.Dir
	layers *disk.Store
	report CopyReport

	wasOwned bool // by something else than a copy of this storage, before this copy

	done     atomic.Int64
	total    int64
	progress func(CopyProgress)
}

// Copy copies the templates of a storage on disk into a bucket. Layers are verified before they are sent. An
// interrupted copy is resumed by another call. The storage may be in use: then a call after its registry has stopped
// copies the rest. Templates of the bucket that the storage does not have stay. One that differs in the bucket is an
// error when a registry has owned the bucket since the last copy: it may have acknowledged what is only there.
func Copy(ctx context.Context, base string, o s3store.Options, progress func(CopyProgress)) (CopyReport, error) {
	bucket, err := s3store.New(o)
	if err != nil {
		return CopyReport{}, err
	}
	dir, err := layout.Open(base)
	if err != nil {
		return CopyReport{}, err
	}
	defer func() { _ = dir.Close() }() // nothing was written
	c := &copier{bucket: bucket, dir: dir, layers: disk.New(dir), progress: progress}
	if err := bucket.CheckBucket(ctx); err != nil {
		return CopyReport{}, err
	}
	if err := bucket.SelfTest(ctx); err != nil {
		return CopyReport{}, err
	}
	release, err := c.own(ctx, base)
	if err != nil {
		return CopyReport{}, err
	}
	err = c.run(ctx)
	return c.report, errors.Join(err, release())
}

// own gets the lease of the prefix, under an ID with which a repeated copy gets it immediately.
func (c *copier) own(ctx context.Context, base string) (release func() error, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("get host name: %w", err)
	}
	if base, err = filepath.Abs(base); err != nil {
		return nil, fmt.Errorf("find the storage directory: %w", err)
	}
	sum := sha256.Sum256([]byte(host + "\x00" + base))
	me := s3store.Owner{ID: "copy-" + hex.EncodeToString(sum[:8]), Host: host, Address: "buildyard registry copy"}
	if c.wasOwned, err = c.wasOwnedByOther(ctx, me.ID); err != nil {
		return nil, err
	}
	if c.lease, err = c.bucket.Acquire(ctx, me); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		c.lease.Run(run)
		close(ended)
	}()
	return func() error {
		stop()
		<-ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		return c.lease.Release(ctx)
	}, nil
}

// wasOwnedByOther reports whether the last owner of the bucket was not a copy of this storage.
func (c *copier) wasOwnedByOther(ctx context.Context, id string) (bool, error) {
	raw, _, err := c.bucket.Get(ctx, s3store.OwnerKey, maxOwnerBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var last s3store.Owner
	return json.Unmarshal(raw, &last) != nil || last.ID != id, nil
}

func (c *copier) run(ctx context.Context) error {
	templates, damaged, err := c.dir.Templates()
	if err != nil {
		return err
	}
	if len(damaged) > 0 {
		return fmt.Errorf("template %s is damaged (%s): run \"buildyard registry repair\" first",
			damaged[0].ID, damaged[0].Problem)
	}
	if err := c.copyLayers(ctx, templates); err != nil {
		return err
	}
	for i := range templates {
		if err := c.copyTemplate(ctx, &templates[i]); err != nil {
			return err
		}
	}
	return c.copyTombstones(ctx)
}

// neededLayer is a layer of a version.
type neededLayer struct {
	digest blob.Digest
	size   int64
	state  bool
}

// neededLayers returns the layers of all versions in the order of their names.
func neededLayers(templates []layout.Template) ([]neededLayer, error) {
	seen := map[blob.Digest]bool{}
	var out []neededLayer
	for i := range templates {
		for _, v := range templates[i].Versions {
			for _, f := range v.Files {
				for _, l := range f.Layers {
					root, err := blob.ParseDigest(l.Digest)
					if err != nil {
						return nil, err
					}
					if !seen[root] {
						seen[root] = true
						out = append(out, neededLayer{root, l.Size, f.Kind == layout.KindState})
					}
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b neededLayer) int { return bytes.Compare(a.digest[:], b.digest[:]) })
	return out, nil
}

func (c *copier) copyLayers(ctx context.Context, templates []layout.Template) error {
	needed, err := neededLayers(templates)
	if err != nil {
		return err
	}
	target, err := s3.OpenTarget(ctx, c.bucket, c.lease)
	if err != nil {
		return err
	}
	var missing []neededLayer
	for _, l := range needed {
		c.report.Layers++
		c.report.Bytes += l.size
		if target.Sizes[l.digest] != l.size {
			missing = append(missing, l)
			c.total += l.size
		}
	}
	c.announce()
	for _, l := range missing {
		if err := c.copyLayer(ctx, target, l); err != nil {
			return fmt.Errorf("copy layer %s: %w", l.digest, err)
		}
		c.report.CopiedBytes += l.size
	}
	return nil
}

func (c *copier) announce() { c.progress(CopyProgress{Done: c.done.Load(), Total: c.total}) }

// copyLayer verifies a layer and sends it.
func (c *copier) copyLayer(ctx context.Context, target *s3.CopyTarget, l neededLayer) error {
	f, err := c.layers.Open(ctx, l.digest)
	if err != nil {
		return err
	}
	defer f.Close()
	layer, err := blob.OpenLayer(f, l.size, l.digest)
	if err == nil {
		err = layer.Verify(ctx)
	}
	if err != nil {
		return err
	}
	if err := c.lease.Valid(); err != nil {
		return err
	}
	copied := s3.CopiedLayer{Digest: l.digest, State: l.state, Bytes: f, Size: l.size}
	return target.Put(ctx, copied, func(n int64) {
		c.done.Add(n)
		c.announce()
	})
}

// copyTemplate copies the metadata of a template. Its template.json is last. One that changed since the templates were
// listed is left out, since the bucket lacks its new versions.
func (c *copier) copyTemplate(ctx context.Context, t *layout.Template) error {
	raw, err := c.readFile(layout.TemplateFilePath(t.ID), maxTemplateBytes)
	if err != nil {
		return err
	}
	var now struct {
		Gen int64 `json:"gen"`
	}
	if err := json.Unmarshal(raw, &now); err != nil {
		return fmt.Errorf("read template %s: %w", t.ID, err)
	}
	if now.Gen != t.Gen {
		c.report.Changed++
		return nil
	}
	condition, same, err := c.compareTemplate(ctx, t, raw)
	if err != nil {
		return err
	}
	c.report.Templates++
	c.report.Versions += len(t.Versions)
	if err := c.copyReports(ctx, t.ID); err != nil || same {
		return err
	}
	for i := range t.Versions {
		if err := c.copyVersion(ctx, t.ID, &t.Versions[i]); err != nil {
			return err
		}
	}
	_, err = c.lease.Put(ctx, objects.TemplateKey(t.ID), raw, condition)
	return err
}

// compareTemplate compares a template with that of the bucket.
func (c *copier) compareTemplate(
	ctx context.Context, t *layout.Template, raw []byte,
) (condition s3store.Condition, same bool, err error) {
	stored, at, err := c.bucket.Get(ctx, objects.TemplateKey(t.ID), maxTemplateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return s3store.Condition{Absent: true}, false, nil
	}
	if err != nil {
		return condition, false, err
	}
	same = bytes.Equal(stored, raw)
	if c.wasOwned && !same {
		return condition, false, fmt.Errorf("template %s is another one in %s, which a registry has owned since the "+
			"last copy: it was not changed; copy to another prefix", t.ID, c.bucket)
	}
	return s3store.Condition{ETag: at.ETag}, same, nil
}

func (c *copier) copyVersion(ctx context.Context, id string, v *layout.Version) error {
	config, err := c.dir.Config(id, v)
	if err != nil {
		return err
	}
	nvram, err := c.dir.NVRAM(id, v)
	if err != nil {
		return err
	}
	raw, err := objects.EncodeVersion(config, nvram)
	if err != nil {
		return err
	}
	_, err = c.lease.Put(ctx, objects.VersionKey(id, v), raw, s3store.Condition{})
	return err
}

// copyReports copies scan reports and the times of pulls.
func (c *copier) copyReports(ctx context.Context, id string) error {
	dir := layout.TemplatePath(id)
	names := []string{path.Join(dir, "pulls.log")}
	entries, err := c.dir.ReadDir(path.Join(dir, ".scans"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list scan reports: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json.gz") {
			names = append(names, path.Join(dir, ".scans", e.Name()))
		}
	}
	for _, name := range names {
		if err := c.copyFile(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) copyTombstones(ctx context.Context) error {
	entries, err := c.dir.ReadDir("deleted_dir")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list deleted templates: %w", err)
	}
	for _, e := range entries {
		if id, ok := layout.ParseID(e.Name()); ok && id == e.Name() {
			if err := c.copyFile(ctx, path.Join("deleted_dir", id)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *copier) copyFile(ctx context.Context, name string) error {
	raw, err := c.readFile(name, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = c.lease.Put(ctx, name, raw, s3store.Condition{})
	return err
}

func (c *copier) readFile(name string, limit int64) ([]byte, error) {
	st, err := c.dir.Root().Stat(name)
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return c.dir.Root().ReadFile(name)
}

// ParseURL returns bucket and prefix of a URL of the form s3://bucket/prefix.
func ParseURL(text string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(text, "s3://")
	bucket, prefix, _ = strings.Cut(rest, "/")
	if !ok || bucket == "" {
		return "", "", fmt.Errorf("invalid destination %q: want s3://bucket or s3://bucket/prefix", text)
	}
	return bucket, strings.Trim(prefix, "/"), nil
}

// copyLeaseDuration is the lease of a copy.
const copyLeaseDuration = time.Minute

// CopyOptions sets the options of a copy that have no settings.
func CopyOptions(o s3store.Options) s3store.Options {
	o.LeaseDuration, o.UploadConcurrency = copyLeaseDuration, 4
	return o
}
