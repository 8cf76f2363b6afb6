package mirror

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// Names in the directory of a mirror in addition to the manifest and the files that it names. They are hidden, so a
// build from the directory of another program's mirror does not read them.
const (
	lockName = ".lock"
	partName = ".part" // directory of partial downloads
)

const lockPollInterval = 100 * time.Millisecond

// errLocked is returned when another process uses a mirror.
var errLocked = errors.New("another process uses the mirror")

// lock locks a mirror for a change, or for reading. It waits until the context ends, unless it is for a change.
func lock(ctx context.Context, dir string, change bool) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil && !change { // a mirror that this user may only read
		f, err = os.Open(filepath.Join(dir, lockName))
		if errors.Is(err, fs.ErrNotExist) {
			f, err = os.Open(dir) // of a copy of a mirror
		}
	}
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_SH
	if change {
		how = unix.LOCK_EX
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock the mirror %s: %w", dir, err)
		case change:
			f.Close()
			return nil, fmt.Errorf("lock the mirror %s: %w", dir, errLocked)
		}
		select {
		case <-time.After(lockPollInterval):
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock the mirror %s: %w: %w", dir, errLocked, context.Cause(ctx))
		}
	}
}

// Is reports whether a path is the directory of a mirror.
func Is(path string) bool {
	st, err := os.Stat(filepath.Join(path, ManifestName))
	return err == nil && st.Mode().IsRegular()
}

// Load reads the manifest of a mirror.
func Load(ctx context.Context, dir string) (*Manifest, error) {
	b, err := input.ReadAll(ctx, filepath.Join(dir, ManifestName), maxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("read the mirror %s: %w", dir, err)
	}
	m, err := ParseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("read the mirror %s: %w", dir, err)
	}
	return m, nil
}

// loadOrCreate reads the manifest of a mirror, or creates an empty one. The caller holds the lock.
func loadOrCreate(ctx context.Context, dir string) (*Manifest, error) {
	if Is(dir) {
		m, err := Load(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("%w; remove the directory to collect everything again", err)
		}
		return m, nil
	}
	// Files in the directories of sources are removed unless the manifest names them. Here they are not of a mirror.
	for _, name := range sourceDirectories() {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil, cmp.Or(err, fmt.Errorf("%s is not a mirror, and has %s already: choose an empty directory", dir,
				name))
		}
	}
	m := &Manifest{Schema: Schema, Sources: map[string]*State{}}
	return m, m.save(dir)
}

func (m *Manifest) save(dir string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(filepath.Join(dir, ManifestName))
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(append(b, '\n')); err != nil {
		return err
	}
	return f.Commit()
}

// Snapshot is a mirror that is open for reading. No synchronization changes it until it is closed.
type Snapshot struct {
	Files   []string  // paths of the advisories, sorted by source and name
	Changed time.Time // when one of them last changed
	Stale   []string  // names of the sources whose last check failed, sorted
	release func()
}

// Close allows changes to the mirror.
func (s *Snapshot) Close() { s.release() }

// Open opens a mirror, and verifies the checksum of every file. It waits while the mirror is synchronized.
func Open(ctx context.Context, dir string) (*Snapshot, error) {
	release, err := lock(ctx, dir, false)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{release: release}
	if err := s.open(ctx, dir); err != nil {
		release()
		return nil, err
	}
	return s, nil
}

func (s *Snapshot) open(ctx context.Context, dir string) error {
	m, err := Load(ctx, dir)
	if err != nil {
		return err
	}
	s.Changed = m.Changed
	for _, name := range slices.Sorted(maps.Keys(m.Sources)) {
		state := m.Sources[name]
		if state.Error != "" {
			s.Stale = append(s.Stale, name)
		}
		for _, f := range state.Files {
			if f.Index {
				continue
			}
			p := filepath.Join(dir, filepath.FromSlash(f.Path))
			sum, size, err := checksum(ctx, p)
			if err == nil && (sum != f.SHA256 || size != f.Size) {
				err = errors.New("the file is damaged")
			}
			if err != nil {
				return fmt.Errorf("read the mirror %s: %s: %w; \"imagescan db sync\" fetches it again", dir, f.Path,
					err)
			}
			s.Files = append(s.Files, p)
		}
	}
	if len(s.Files) == 0 {
		return fmt.Errorf("the mirror %s has no advisories yet; run \"imagescan db sync\"", dir)
	}
	return nil
}

// checksum returns the SHA-256 of a file in hex, and its size.
func checksum(ctx context.Context, path string) (string, int64, error) {
	f, err := input.Open(ctx, path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), n, err
}

// removeUnlisted removes the files in the directories of sources that the manifest does not name: an interrupted
// synchronization left them, or they are former versions.
func (m *Manifest) removeUnlisted(dir string) error {
	listed := map[string]bool{}
	for _, s := range m.Sources {
		for _, f := range s.Files {
			listed[f.Path] = true
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, top := range sourceDirectories() {
		err := fs.WalkDir(root.FS(), top, func(p string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil || d.IsDir() || listed[p] || strings.HasPrefix(d.Name(), "."):
				return err
			}
			return root.Remove(p)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
