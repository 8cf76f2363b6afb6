package update

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
)

// ListingName is the name of the listing in a directory of published databases.
const ListingName = "latest.json"

// keptDatabases is the number of former databases that stay for clients which are downloading them.
const keptDatabases = 2

// ErrRollback is returned when a published database is newer than the one to publish; match it with errors.Is.
var ErrRollback = errors.New("the published database is newer")

// PublishOptions configure Publish.
type PublishOptions struct {
	Database string             // file
	Dir      string             // of published databases
	Key      ed25519.PrivateKey // nil: the listing is not signed
}

// lockedName is the name in a directory of published databases whose lock the publishing process holds.
const lockedName = ".publish"

// LockPublished creates a directory of published databases and waits until no other process publishes there. The
// lock ends with the process.
func LockPublished(ctx context.Context, dir string) (release func(), err error) {
	return dbLocation(filepath.Join(dir, lockedName)).acquireLock(ctx, 0)
}

// Publish copies a database into a directory under a new name, and then lists it, so that a concurrent update finds
// every listed file. A listed database is never replaced by an older one: clients refuse it. The caller holds the lock
// of LockPublished.
func Publish(ctx context.Context, o PublishOptions) (Listing, error) {
	l, err := o.publish(ctx)
	if err != nil {
		return l, fmt.Errorf("publish the vulnerability database: %w", err)
	}
	return l, nil
}

func (o PublishOptions) publish(ctx context.Context) (Listing, error) {
	l, err := describeDatabase(ctx, o.Database)
	if err != nil {
		return l, err
	}
	if err := o.checkRollback(l); err != nil {
		return l, err
	}
	name, err := o.copyDatabase(l)
	if err != nil {
		return l, err
	}
	l, err = WriteListing(ctx, ListingOptions{
		Database: filepath.Join(o.Dir, name), Target: filepath.Join(o.Dir, ListingName), Key: o.Key,
	})
	if err != nil {
		return l, err
	}
	return l, o.removeFormer(name)
}

// checkRollback returns an error when the listed database is newer.
func (o PublishOptions) checkRollback(l Listing) error {
	path := filepath.Join(o.Dir, ListingName)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var listed Listing
	b, err := io.ReadAll(io.LimitReader(f, maxListingBytes))
	if err == nil {
		err = json.Unmarshal(b, &listed)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w; remove it if it is not a listing", path, err)
	case listed.Schema > vulndb.Schema:
		return fmt.Errorf("%w: %s has schema %d, this program has %d", ErrRollback, path, listed.Schema, vulndb.Schema)
	case listed.Built.After(l.Built):
		return fmt.Errorf("%w: it was built at %s, this one at %s; clients refuse an older one; to publish it "+
			"nevertheless, remove %s", ErrRollback, listed.Built, l.Built, path)
	}
	return nil
}

// copyDatabase copies the database to a name with its date, unless it is there. Another database of the same date
// stays as it is.
func (o PublishOptions) copyDatabase(l Listing) (string, error) {
	name := "vuln-" + l.Built.UTC().Format("20060102T150405Z") + ".db"
	sum, _, err := fileChecksum(filepath.Join(o.Dir, name))
	if err == nil && sum != l.Checksum {
		name = strings.TrimSuffix(name, ".db") + "-" + strings.TrimPrefix(l.Checksum, checksumPrefix)[:12] + ".db"
		sum, _, err = fileChecksum(filepath.Join(o.Dir, name))
	}
	switch {
	case err == nil && sum == l.Checksum:
		return name, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	from, err := os.Open(o.Database)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := atomicfile.Create(filepath.Join(o.Dir, name))
	if err != nil {
		return "", err
	}
	defer to.Discard()
	if _, err := io.Copy(to, from); err != nil {
		return "", err
	}
	return name, to.Commit()
}

var publishedPattern = regexp.MustCompile(`^vuln-\d{8}T\d{6}Z(-[0-9a-f]{12})?\.db$`)

// removeFormer removes the databases that were published before, except the last ones.
func (o PublishOptions) removeFormer(current string) error {
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return err
	}
	var former []string // the oldest first
	for _, e := range entries {
		if e.Type().IsRegular() && publishedPattern.MatchString(e.Name()) && e.Name() != current {
			former = append(former, e.Name())
		}
	}
	slices.Sort(former)
	for _, name := range former[:max(0, len(former)-keptDatabases)] {
		if err := os.Remove(filepath.Join(o.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}
