package mirror

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
	"github.com/buildyard/buildyard/internal/scan/vulndb/download"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// An ecosystem has three files in a mirror: its archive, the records that changed since it was fetched, and the list
// of what both have. The list is compared with the published one, so a record that is published late is found, too.
const (
	archiveFile = "/all.zip"
	changesFile = "/changes.zip"
	indexFile   = "/modified_id.csv.gz"
)

const (
	maxSingle     = 500   // records that are fetched one by one; more: the archive is fetched
	maxChanges    = 5_000 // records in the file of changes
	maxOneRecord  = 16 << 20
	modifiedBytes = 256 << 20 // of modified_id.csv
)

// collectEcosystem collects an ecosystem of OSV: its archive, or the records that changed since.
func (c *collector) collectEcosystem(ctx context.Context) error {
	known, err := c.loadIndex(ctx)
	if err != nil || known == nil {
		if err := c.collectArchive(ctx); err != nil {
			return err
		}
		known, err = c.loadIndex(ctx)
		if err != nil {
			return err
		}
	}
	published, err := c.fetchModified(ctx)
	if isMissing(err) {
		return c.collectArchive(ctx) // a mirror with archives alone
	}
	if err == nil {
		err = c.checkRecords(c.source.Name+archiveFile, c.source.URL+"modified_id.csv", len(published))
	}
	if err != nil {
		return err
	}
	d := published.since(known)
	if c.isTooLarge(d) {
		// The list is fetched after the archive: one that is older would lack records of the archive.
		if err := c.collectArchive(ctx); err != nil {
			return err
		}
		if known, err = c.loadIndex(ctx); err == nil {
			published, err = c.fetchModified(ctx)
		}
		if err != nil {
			return err
		}
		if d = published.since(known); c.isTooLarge(d) {
			return fmt.Errorf("%sall.zip is older than its modified_id.csv, which lists %d other records: they are "+
				"missing until a later run", c.source.URL, d.size())
		}
	}
	if d.size() == 0 {
		return nil
	}
	return c.collectRecords(ctx, published, known, d)
}

// isTooLarge reports whether the archive is fetched instead of the records that changed.
func (c *collector) isTooLarge(d difference) bool {
	return d.size() > maxSingle || d.size() > 0 && c.changes()+d.size() > maxChanges
}

// changes returns the number of records that changed since the archive.
func (c *collector) changes() int {
	if f := c.state.file(c.source.Name + changesFile); f != nil {
		return f.Records
	}
	return 0
}

// loadIndex returns the list of what the mirror has; nil when it has nothing.
func (c *collector) loadIndex(ctx context.Context) (modifiedIDs, error) {
	f := c.state.file(c.source.Name + indexFile)
	archive := c.state.file(c.source.Name + archiveFile)
	if f == nil || archive == nil || !strings.HasPrefix(archive.URL, c.source.URL) {
		return nil, nil
	}
	file, err := input.Open(ctx, filepath.Join(c.Dir, filepath.FromSlash(f.Path)))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return parseModifiedIDs(io.LimitReader(z, maxIndexBytes))
}

// saveIndex puts the list of what the mirror has into it.
func (c *collector) saveIndex(ctx context.Context, ids modifiedIDs) error {
	name := c.source.Name + indexFile
	part := filepath.Join(c.Dir, partName, strings.ReplaceAll(name, "/", "_"))
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(ids.format()); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(part, b.Bytes(), 0o644); err != nil {
		return err
	}
	f := File{Name: name, URL: c.source.URL + "modified_id.csv", Records: len(ids), Index: true}
	return c.put(ctx, part, f)
}

// fetchModified returns the published list of records.
func (c *collector) fetchModified(ctx context.Context) (modifiedIDs, error) {
	q := c.request(c.source.Name+"/published.csv", c.source.URL+"modified_id.csv")
	q.MaxBytes = modifiedBytes
	b, err := c.fetchSmall(ctx, q)
	if err != nil {
		return nil, err
	}
	ids, err := parseModifiedIDs(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.URL, err)
	}
	return ids, nil
}

// collectArchive fetches the archive if it has changed, and the list of its records. The records that changed since
// the former archive are part of it.
func (c *collector) collectArchive(ctx context.Context) error {
	name := c.source.Name + archiveFile
	q := c.request(name, c.source.URL+"all.zip")
	if c.state.file(c.source.Name+indexFile) == nil {
		q.Known = download.Validators{} // the list is made from a new archive
	}
	r, err := c.fetch(ctx, q)
	if err != nil || r.NotModified {
		return err
	}
	ids, err := readArchive(ctx, q.Part)
	if err == nil {
		err = c.checkRecords(name, q.URL, len(ids))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", q.URL, err), download.Discard(q.Part))
	}
	// Without a list, an interruption between the steps leads to the archive, never to a wrong list.
	if err := c.drop(func(f File) bool { return f.Index }); err != nil {
		return err
	}
	f := File{Name: name, URL: q.URL, Validators: r.Validators, Records: len(ids), Date: lastModified(r.Validators)}
	if err := c.put(ctx, q.Part, f); err != nil {
		return err
	}
	if err := c.drop(func(f File) bool { return f.Name == c.source.Name+changesFile }); err != nil {
		return err
	}
	return c.saveIndex(ctx, ids)
}

// collectRecords fetches single records into the file of changes, and updates the list of known ones. A record that
// is no longer published is withdrawn there. After a failure, what was received is used.
func (c *collector) collectRecords(ctx context.Context, published, known modifiedIDs, d difference) error {
	records, failed := c.fetchRecords(ctx, published, known, d.changed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, id := range d.removed {
		// It replaces the record of this ecosystem, but no newer one that another ecosystem has under the same ID.
		date := known[id].Add(time.Second).Format(time.RFC3339)
		records[id] = fmt.Appendf(nil, `{"id":%q,"modified":%q,"withdrawn":%q}`, id, date, date)
		delete(known, id)
	}
	if len(records) > 0 {
		if err := c.addChanges(ctx, records); err != nil {
			return err
		}
	}
	return errors.Join(failed, c.saveIndex(ctx, known))
}

// maxMissingAge is the age from which on a listed record is not expected any more: the list may be published before
// its records are.
const maxMissingAge = 24 * time.Hour

// fetchRecords fetches records, and updates the list of known ones. A record that cannot be used does not concern
// others; when the server fails the others are left for a later run.
func (c *collector) fetchRecords(ctx context.Context, published, known modifiedIDs, ids []string,
) (records map[string][]byte, failed error) {
	records = map[string][]byte{}
	for i, id := range ids {
		c.Progress(Progress{Source: c.source.Name, File: fmt.Sprintf("%s (%d of %d)", id, i+1, len(ids)), Total: -1})
		b, modified, err := c.fetchRecord(ctx, id)
		switch {
		case isMissing(err):
			if c.now().Sub(published[id]) > maxMissingAge {
				known[id] = published[id]
			}
		case isUnusable(err):
			failed = cmp.Or(failed, err)
		case err != nil:
			return records, err
		default: // that of a cache may be older than the list
			records[id], known[id] = b, cmp.Or(modified, published[id])
		}
	}
	return records, failed
}

// errOtherRecord is returned for a response that is not the requested record.
var errOtherRecord = errors.New("not the requested record")

func isUnusable(err error) bool {
	_, tooLarge := errors.AsType[*download.SizeError](err)
	return tooLarge || errors.Is(err, errOtherRecord)
}

// fetchRecord fetches one record, and returns an error unless it is the named one. Its date is zero when it is invalid.
func (c *collector) fetchRecord(ctx context.Context, id string) (b []byte, modified time.Time, err error) {
	q := c.request(c.source.Name+"/record.json", c.source.URL+url.PathEscape(id)+".json")
	q.MaxBytes, q.Progress = maxOneRecord, nil
	if b, err = c.fetchSmall(ctx, q); err != nil {
		return nil, time.Time{}, err
	}
	var record struct {
		ID       string `json:"id"`
		Modified string `json:"modified"`
	}
	if err := json.Unmarshal(b, &record); err != nil || record.ID != id {
		return nil, time.Time{}, fmt.Errorf("%s: %w %s", q.URL, errOtherRecord, id)
	}
	modified, _ = parseModified(record.Modified)
	return b, modified, nil
}

// addChanges writes the file of changes again, with further records.
func (c *collector) addChanges(ctx context.Context, records map[string][]byte) error {
	name := c.source.Name + changesFile
	part := filepath.Join(c.Dir, partName, strings.ReplaceAll(name, "/", "_"))
	former := ""
	if f := c.state.file(name); f != nil {
		former = filepath.Join(c.Dir, filepath.FromSlash(f.Path))
	}
	n, err := writeChanges(part, former, records, c.now())
	if err != nil {
		return err
	}
	return c.put(ctx, part, File{Name: name, URL: c.source.URL, Records: n, Date: c.now()})
}

// writeChanges writes an archive of the records, and of those in a former one that they do not replace.
func writeChanges(path, former string, records map[string][]byte, date time.Time) (int, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Discard()
	w := zip.NewWriter(f.File)
	n, err := copyEntries(w, former, records)
	if err != nil {
		return 0, err
	}
	for _, id := range slices.Sorted(maps.Keys(records)) {
		e, err := w.CreateHeader(&zip.FileHeader{Name: id + ".json", Method: zip.Deflate, Modified: date})
		if err == nil {
			_, err = e.Write(records[id])
		}
		if err != nil {
			return 0, err
		}
		n++
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	return n, f.Commit()
}

// copyEntries copies the entries of an archive that are not replaced. There may be no archive.
func copyEntries(w *zip.Writer, from string, replaced map[string][]byte) (int, error) {
	z, err := zip.OpenReader(from)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer z.Close() //nolint:errcheck // read only
	n := 0
	for _, e := range z.File {
		if _, ok := replaced[strings.TrimSuffix(e.Name, ".json")]; ok {
			continue
		}
		if err := w.Copy(e); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
