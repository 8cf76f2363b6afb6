package mirror

import (
	"archive/zip"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
	"github.com/buildyard/buildyard/internal/scan/vulndb/feed"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// countRecords reads a whole file as a build does, and returns the number of its records. A file that is damaged or
// that no build would use is an error.
func countRecords(ctx context.Context, file string) (int, error) {
	records := 0
	var damage error
	n, err := feed.Read(ctx, file, func(it feed.Item) error {
		records += it.Count()
		return ctx.Err()
	}, func(r feed.Rejection) {
		damage = fmt.Errorf("%s: %s", r.Record, r.Reason)
	})
	switch {
	case err != nil:
		return 0, err
	case damage != nil && n.Files == 1:
		return 0, damage
	case n.Files == 0 || records == 0:
		return 0, errors.New("the file is not an advisory feed, or has no records")
	}
	return records, nil
}

// Limits of an archive of OSV. The records are larger than their limit in builds: those are named there.
const (
	maxEntries     = 4 << 20
	maxEntryBytes  = 256 << 20
	maxZipUnpacked = 64 << 30
)

// readArchive reads every record of an archive of OSV, which verifies its checksum, and returns when each was
// modified, by ID.
func readArchive(ctx context.Context, file string) (modifiedIDs, error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer z.Close() //nolint:errcheck // read only
	if len(z.File) > maxEntries {
		return nil, fmt.Errorf("the archive has more than %d records", maxEntries)
	}
	ids := make(modifiedIDs, len(z.File))
	left := int64(maxZipUnpacked)
	for _, e := range z.File {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		id, isRecord := strings.CutSuffix(e.Name, ".json")
		if !isRecord || !e.Mode().IsRegular() || path.Base(e.Name) != e.Name {
			continue
		}
		modified, n, err := readEntry(e)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		if left -= n; left < 0 {
			return nil, fmt.Errorf("the records have more than %d bytes", int64(maxZipUnpacked))
		}
		if validID(id) {
			ids[id] = modified
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("the archive has no records")
	}
	return ids, nil
}

// readEntry reads a record to its end. One that is not JSON, or too large for builds, has no date: builds name it.
func readEntry(e *zip.File) (modified time.Time, n int64, err error) {
	r, err := e.Open()
	if err != nil {
		return time.Time{}, 0, err
	}
	defer r.Close()
	counted := &countingReader{r: io.LimitReader(r, maxEntryBytes+1)}
	var record struct {
		Modified time.Time `json:"modified"`
	}
	_ = json.NewDecoder(io.LimitReader(counted, maxOneRecord)).Decode(&record)
	if _, err := io.Copy(io.Discard, counted); err != nil {
		return time.Time{}, 0, err
	}
	if counted.n > maxEntryBytes {
		return time.Time{}, 0, fmt.Errorf("the record has more than %d MiB", maxEntryBytes>>20)
	}
	return record.Modified.UTC().Truncate(time.Second), counted.n, nil
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// unpackedSum returns the SHA-256 of the content of a gzip file, which has at most so many bytes.
func unpackedSum(ctx context.Context, file string, most int64) (string, error) {
	f, err := input.Open(ctx, file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 256<<10))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(z, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("the content has more than %d bytes", most)
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// maxTextBytes bounds the content of a text that its server has compressed.
const maxTextBytes = 4 << 30

// compress replaces a file by its content in gzip form. The header has no date, so equal content has an equal sum.
func compress(file string, compressed bool) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	from := io.Reader(f)
	if compressed {
		if from, err = gzip.NewReader(bufio.NewReaderSize(f, 64<<10)); err != nil {
			return err
		}
	}
	to, err := atomicfile.Create(file)
	if err != nil {
		return err
	}
	defer to.Discard()
	z, err := gzip.NewWriterLevel(to.File, gzip.BestSpeed)
	if err != nil {
		return err
	}
	n, err := io.Copy(z, io.LimitReader(from, maxTextBytes+1))
	if err == nil && n > maxTextBytes {
		err = fmt.Errorf("the content has more than %d bytes", int64(maxTextBytes))
	}
	if err := errors.Join(err, z.Close()); err != nil {
		return err
	}
	return to.Commit()
}
