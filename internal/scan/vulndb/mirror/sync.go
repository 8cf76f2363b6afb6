package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
	"github.com/buildyard/buildyard/internal/scan/vulndb/download"
)

// Options configure a synchronization.
type Options struct {
	Dir    string            // of the mirror; it is created
	Only   []string          // names of sources; empty is all but those that are collected only when named
	URLs   map[string]string // that replace those of sources, by name; "osv" is the directory of all ecosystems
	NVDKey string            // key of NVD's API; "" is none

	Client   *download.Client // nil is the default one
	Now      func() time.Time // nil is time.Now
	Progress func(Progress)

	// nvdPause is the time between two requests to NVD's API; 0 is what its limits demand.
	nvdPause time.Duration
	// firstYear is that of the oldest feed; 0 is firstFeedYear.
	firstYear int
}

// Progress is the progress of a synchronization.
type Progress struct {
	Source, File string
	Done, Total  int64 // bytes of the file; Total is -1 when it is unknown, Done 0 before the first byte
}

// Outcome is the result of the synchronization of one source.
type Outcome string

// The outcomes.
const (
	Updated Outcome = "updated"
	Current Outcome = "current" // nothing has changed
	Failed  Outcome = "failed"  // the former files stay
)

// Result is the result of one source.
type Result struct {
	Source  string
	Outcome Outcome
	Err     error // of Failed
	State   State
}

// Validate returns an error unless the names and URLs of sources can be used.
func (o Options) Validate() error {
	if _, err := selectSources(o.Only, &Manifest{}); err != nil {
		return err
	}
	_, err := withURLs(nil, o.URLs)
	return err
}

// Sync collects what has changed at the sources. An error of a source is in its result and does not concern others.
func Sync(ctx context.Context, o Options) ([]Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Client == nil {
		o.Client = &download.Client{}
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, partName), 0o755); err != nil {
		return nil, err
	}
	release, err := lock(ctx, o.Dir, true)
	if err != nil {
		return nil, err
	}
	defer release()
	m, err := loadOrCreate(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	list, err := selectSources(o.Only, m)
	if err == nil {
		list, err = withURLs(list, o.URLs)
	}
	if err != nil {
		return nil, err
	}
	if err := m.removeUnlisted(o.Dir); err != nil {
		return nil, err
	}
	var out []Result
	for _, s := range list {
		r := (&collector{Options: o, manifest: m, source: s}).collect(ctx)
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if err := m.save(o.Dir); err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

// collector collects one source.
type collector struct {
	Options
	manifest *Manifest
	source   Source
	state    *State
	changed  bool // a file was added, replaced or removed
}

// collectors are the functions of the forms. Each puts the files that have changed into the mirror.
var collectors = map[Form]func(*collector, context.Context) error{
	OneFile: (*collector).collectFile, OSV: (*collector).collectEcosystem,
	NVDFeeds: (*collector).collectFeeds, NVDAPI: (*collector).collectChanges,
}

func (c *collector) collect(ctx context.Context) Result {
	name := c.source.Name
	if c.manifest.Sources[name] == nil {
		c.manifest.Sources[name] = &State{}
	}
	c.state = c.manifest.Sources[name]
	damaged, err := c.dropDamaged(ctx)
	if err == nil {
		err = collectors[c.source.Form](c, ctx)
	}
	if ctx.Err() != nil {
		return Result{} // not a failure of the source
	}
	r := Result{Source: name, Outcome: Current, Err: err}
	if c.changed {
		r.Outcome = Updated
	}
	if err != nil {
		c.restore(damaged)
		r.Outcome = Failed
		c.state.Failed, c.state.Error = c.now(), shorten(FormatError(err))
	} else {
		c.state.Checked, c.state.Failed, c.state.Error = c.now(), time.Time{}, ""
	}
	r.State = *c.state
	return r
}

func (c *collector) now() time.Time { return c.Now().UTC().Truncate(time.Second) }

// setChanged records that the files of the source change now.
func (c *collector) setChanged() {
	c.changed = true
	c.state.Changed = c.now()
	c.manifest.Changed = c.state.Changed
}

// maxErrorBytes bounds the errors in the manifest, which may quote what a server sends.
const maxErrorBytes = 2000

func shorten(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxErrorBytes)], "") }

// FormatError returns an error in one line; of several, as of the years of a source, each follows a semicolon.
func FormatError(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// dropDamaged removes the files of the source from the manifest that are missing or have other bytes, and then also
// the records of what they have. It returns the damaged files.
func (c *collector) dropDamaged(ctx context.Context) (damaged []File, err error) {
	c.state.Files = slices.DeleteFunc(c.state.Files, func(f File) bool {
		if ctx.Err() != nil {
			return false
		}
		sum, size, err := checksum(ctx, filepath.Join(c.Dir, filepath.FromSlash(f.Path)))
		if ctx.Err() == nil && (err != nil || sum != f.SHA256 || size != f.Size) {
			damaged = append(damaged, f)
			return true
		}
		return false
	})
	if len(damaged) > 0 {
		c.state.Files = slices.DeleteFunc(c.state.Files, func(f File) bool { return f.Index })
		c.forgetCollected(damaged)
	}
	return damaged, ctx.Err()
}

// restore puts damaged files that could not be fetched again back into the manifest: a build then refuses the mirror,
// instead of leaving out their advisories.
func (c *collector) restore(damaged []File) {
	for _, f := range damaged {
		if !f.Index && c.state.file(f.Name) == nil {
			c.state.Files = append(c.state.Files, f)
		}
	}
	c.state.sortFiles()
}

// request returns the request for a file of the mirror, conditional on its present version.
func (c *collector) request(name, url string) download.Request {
	q := download.Request{
		URL: url, Part: filepath.Join(c.Dir, partName, strings.ReplaceAll(name, "/", "_")),
		MaxBytes: c.source.maxBytes, Gzip: c.source.gzip,
		Progress: func(done, total int64) {
			c.Progress(Progress{Source: c.source.Name, File: name, Done: done, Total: total})
		},
	}
	if f := c.state.file(name); f != nil && f.URL == url {
		q.Known = f.Validators
	}
	return q
}

// fetch fetches a file. Plain text is compressed by the mirror, whether the server has compressed it or not, so that
// equal content has equal bytes.
func (c *collector) fetch(ctx context.Context, q download.Request) (download.Response, error) {
	r, err := c.Client.Fetch(ctx, q)
	if err == nil && !r.NotModified && q.Gzip {
		if err = download.Detach(q.Part); err == nil {
			err = compress(q.Part, r.Gzipped)
		}
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", q.URL, err), download.Discard(q.Part))
		}
	}
	return r, err
}

// fetchSmall fetches a file that is not kept. What a former run has received of it is not used: it may be old.
func (c *collector) fetchSmall(ctx context.Context, q download.Request) ([]byte, error) {
	q.Gzip, q.Known = false, download.Validators{}
	if err := download.Discard(q.Part); err != nil {
		return nil, err
	}
	if _, err := c.fetch(ctx, q); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(q.Part)
	return b, errors.Join(err, download.Discard(q.Part))
}

// isMissing reports whether a source does not have a file.
func isMissing(err error) bool {
	status, ok := errors.AsType[*download.StatusError](err)
	return ok && (status.Code == http.StatusNotFound || status.Code == http.StatusGone)
}

// put moves a received file into the mirror, after it was verified, and saves the manifest. The former version is
// removed afterwards.
func (c *collector) put(ctx context.Context, part string, f File) error {
	sum, size, err := checksum(ctx, part)
	if err != nil {
		return err
	}
	f.SHA256, f.Size, f.Path, f.Fetched = sum, size, pathOf(f.Name, sum), c.now()
	former := c.state.file(f.Name)
	if former == nil || former.SHA256 != sum {
		target := filepath.Join(c.Dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := moveInto(part, target); err != nil {
			return err
		}
		c.setChanged()
	}
	if err := download.Discard(part); err != nil {
		return err
	}
	return c.replace(former, f)
}

// replace puts a file into the manifest in place of its former version.
func (c *collector) replace(former *File, f File) error {
	obsolete := ""
	if former != nil {
		if former.Path != f.Path {
			obsolete = former.Path
		}
		*former = f
	} else {
		c.state.Files = append(c.state.Files, f)
		c.state.sortFiles()
	}
	if err := c.manifest.save(c.Dir); err != nil {
		return err
	}
	if obsolete != "" {
		return os.Remove(filepath.Join(c.Dir, filepath.FromSlash(obsolete)))
	}
	return nil
}

// drop removes files from the mirror.
func (c *collector) drop(obsolete func(File) bool) error {
	var paths []string
	c.state.Files = slices.DeleteFunc(c.state.Files, func(f File) bool {
		if obsolete(f) {
			paths = append(paths, f.Path)
			return true
		}
		return false
	})
	if len(paths) == 0 {
		return nil
	}
	c.setChanged()
	if err := c.manifest.save(c.Dir); err != nil {
		return err
	}
	for _, p := range paths {
		if err := os.Remove(filepath.Join(c.Dir, filepath.FromSlash(p))); err != nil {
			return err
		}
	}
	return nil
}

// moveInto syncs a file and renames it.
func moveInto(part, target string) error {
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return atomicfile.Rename(f, target)
}

// minShare is the smallest part of the former records that a new version of a file may have: a source that publishes
// an incomplete file has no effect.
const (
	minShare         = 0.5
	minSharedRecords = 100
)

// checkRecords returns an error when a new version has far fewer records than the present one.
func (c *collector) checkRecords(name, url string, records int) error {
	f := c.state.file(name)
	if f == nil || f.Records < minSharedRecords || float64(records) >= minShare*float64(f.Records) {
		return nil
	}
	return fmt.Errorf("%s has %d records and had %d before: not replaced; if that is right, remove %s and run this "+
		"command again", url, records, f.Records, filepath.Join(c.Dir, filepath.FromSlash(f.Path)))
}

// collectFile collects a source of one file.
func (c *collector) collectFile(ctx context.Context) error {
	name := c.source.File
	q := c.request(name, c.source.URL)
	r, err := c.fetch(ctx, q)
	if err != nil || r.NotModified {
		return err
	}
	records, err := countRecords(ctx, q.Part)
	if err == nil {
		err = c.checkRecords(name, c.source.URL, records)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", c.source.URL, err), download.Discard(q.Part))
	}
	return c.put(ctx, q.Part, File{
		Name: name, URL: c.source.URL, Validators: r.Validators, Records: records, Date: lastModified(r.Validators),
	})
}

// lastModified returns the date of a response; zero is unknown.
func lastModified(v download.Validators) time.Time {
	t, err := http.ParseTime(v.Modified)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
