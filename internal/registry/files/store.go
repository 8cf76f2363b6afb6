package files

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits without a setting.
const (
	MaxFileBytes   = 1 << 30  // bytes of one file
	MaxLogBytes    = 64 << 20 // bytes of one log of a failed VM
	maxFiles       = 20000    // of an area
	maxListEntries = 50000    // entries of a list: more than maxFiles files and their directories
	minFreeBytes   = 256 << 20
	tempPrefix     = ".upload-" // begins the names of files that are being written
)

// The default limits.
const (
	DefaultLogRetention = 7 * 24 * time.Hour
	DefaultMaxLogsBytes = 1 << 30
	DefaultMaxBytes     = 10 << 30
)

// Options configures a Store. The zero value of all but Root means a default.
type Options struct {
	Root         *os.Root      // the directory files/; Close closes it
	LogRetention time.Duration // how long logs of failed VMs stay: DefaultLogRetention
	MaxLogsBytes int64         // bytes of the logs of failed VMs, the oldest go: DefaultMaxLogsBytes
	MaxBytes     int64         // bytes of all other files, beyond which uploads are refused: DefaultMaxBytes

	Full func() bool                           // reports that no uploads are accepted; nil: never
	Free func() (free, total int64, err error) // space on the disk; nil: enough
	Now  func() time.Time
	Sync func(*os.File) error // replaces fsync of a file or directory in tests
	Log  *slog.Logger
}

// Store is the files below one directory. Its methods may be called from many goroutines.
type Store struct {
	opts Options

	mu          sync.Mutex // guards the fields below, and is held while names change
	failureLogs areaUsage
	otherFiles  areaUsage
	lastPrune   time.Time
	// uploaders maps a file below Logs to the caller that uploaded it since the start. Other files are counted
	// by their directory.
	uploaders      map[string]string
	uploadingBytes map[string]int64 // caller -> bytes of logs that they are uploading
}

// areaUsage counts the files and bytes of an area, including running uploads.
type areaUsage struct {
	files int
	bytes int64
}

// Open counts the files and removes the remains of interrupted uploads.
func Open(o Options) (*Store, error) {
	if o.LogRetention == 0 {
		o.LogRetention = DefaultLogRetention
	}
	o.MaxLogsBytes, o.MaxBytes = cmp.Or(o.MaxLogsBytes, DefaultMaxLogsBytes), cmp.Or(o.MaxBytes, DefaultMaxBytes)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sync == nil {
		o.Sync = (*os.File).Sync
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{opts: o, uploaders: map[string]string{}, uploadingBytes: map[string]int64{}}
	err := fs.WalkDir(o.Root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == CentralLogsDir:
			return fs.SkipDir
		case e.IsDir() || !e.Type().IsRegular():
			return nil
		case strings.HasPrefix(e.Name(), tempPrefix):
			return o.Root.Remove(name)
		}
		info, err := e.Info()
		if err == nil {
			s.addUsage(name, 1, info.Size())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	s.PruneLogs()
	return s, nil
}

// Close closes the directory.
func (s *Store) Close() error { return s.opts.Root.Close() }

// usageOf returns the usage of the area that a name belongs to.
func (s *Store) usageOf(name string) *areaUsage {
	if topDirOf(name) == FailureLogsDir {
		return &s.failureLogs
	}
	return &s.otherFiles
}

func (s *Store) addUsage(name string, files int, bytes int64) {
	h := s.usageOf(name)
	h.files += files
	h.bytes += bytes
}

// File is a file that is open for reading. It must be closed.
type File struct {
	*os.File
	Size     int64
	Modified time.Time
}

// OpenFile opens a file.
func (s *Store) OpenFile(name string) (*File, error) {
	info, err := statNoFollow(s.opts.Root, name)
	if err != nil || info.IsDir() {
		return nil, farm.NotFound()
	}
	f, err := s.opts.Root.Open(name)
	if err != nil {
		return nil, lookupError(err)
	}
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(farm.NotFound(), f.Close())
	}
	return &File{File: f, Size: info.Size(), Modified: info.ModTime()}, nil
}

// lookupError sets the exact message of a failed lookup.
func lookupError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return farm.NotFound()
	}
	return fmt.Errorf("open a file: %w", err)
}

// List lists a directory; "" is the top.
func (s *Store) List(dir string) ([]api.StoredFile, error) {
	if dir = strings.Trim(dir, "/"); dir == "" {
		dir = "."
	}
	info, err := statNoFollow(s.opts.Root, dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, farm.NotFound()
	}
	in, err := s.opts.Root.Open(dir)
	if err != nil {
		return nil, lookupError(err)
	}
	defer in.Close()
	entries, err := in.ReadDir(maxListEntries)
	if err != nil && !errors.Is(err, io.EOF) { // the end of an empty directory
		return nil, fmt.Errorf("list a directory: %w", err)
	}
	list := []api.StoredFile{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.IsDir() && !info.Mode().IsRegular() || CheckName(e.Name()) != nil {
			continue
		}
		out := api.StoredFile{Name: e.Name(), Dir: info.IsDir(), Modified: info.ModTime().UTC()}
		if !out.Dir {
			out.Size = info.Size()
		}
		list = append(list, out)
	}
	slices.SortFunc(list, func(a, b api.StoredFile) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Remove removes a file and the directories that become empty, or an empty directory.
func (s *Store) Remove(name string) error {
	if err := checkWritable(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := statNoFollow(s.opts.Root, name)
	if err != nil {
		return err
	}
	if err := s.opts.Root.Remove(name); err != nil {
		if info.IsDir() && !errors.Is(err, fs.ErrNotExist) {
			return farm.Refused("The directory %s is not empty", name)
		}
		return lookupError(err)
	}
	if !info.IsDir() {
		s.addUsage(name, -1, -info.Size())
		delete(s.uploaders, name)
	}
	s.removeEmptyDirs(path.Dir(name))
	return nil
}

// removeEmptyDirs removes a directory and its parents while they are empty: directories are not counted. The caller
// holds mu.
func (s *Store) removeEmptyDirs(dir string) {
	for dir != "." && dir != FailureLogsDir && s.opts.Root.Remove(dir) == nil {
		dir = path.Dir(dir)
	}
}

// checkWritable refuses invalid names, and those of the log server.
func checkWritable(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	switch top := topDirOf(name); { // some file systems ignore case
	case strings.EqualFold(top, CentralLogsDir):
		return farm.Invalid("name", "files in %s are written only by the central logs", CentralLogsDir)
	case strings.EqualFold(top, FailureLogsDir) && (top != FailureLogsDir || top == name):
		return farm.Invalid("name", "%s is the directory of VM failure logs", FailureLogsDir)
	}
	return nil
}

const pruneInterval = 10 * time.Minute

// PruneLogs removes expired logs of failed VMs. It does nothing if it ran a short time ago.
func (s *Store) PruneLogs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Now()
	if since := now.Sub(s.lastPrune); since >= 0 && since < pruneInterval && !s.lastPrune.IsZero() {
		return
	}
	s.lastPrune = now
	if s.failureLogs.files > 0 {
		s.pruneLogsLocked(now)
	}
}

// logFile is a file below Logs.
type logFile struct {
	name      string
	size      int64
	modified  time.Time
	overShare float64 // by how much its uploader exceeds the share with it and later uploads; 0: not at all
}

// logShares is how many equal shares the logs of failed VMs have. The logs of an uploader over its share are
// removed first.
const logShares = 16

// pruneLogsLocked removes logs of failed VMs until there is capacity again: first the expired ones, then the oldest of
// the uploader that exceeds its share most, then the oldest of all.
func (s *Store) pruneLogsLocked(now time.Time) {
	all := s.listLogs()
	slices.SortFunc(all, func(a, b logFile) int { return a.modified.Compare(b.modified) })
	tooOld, _ := slices.BinarySearchFunc(all, now.Add(-s.opts.LogRetention),
		func(f logFile, limit time.Time) int { return f.modified.Compare(limit) })
	for _, f := range all[:tooOld] {
		s.removeLog(f)
	}
	all = all[tooOld:]
	s.computeOverShare(all)
	slices.SortStableFunc(all, func(a, b logFile) int { return cmp.Compare(b.overShare, a.overShare) })
	for _, f := range all {
		if s.failureLogs.bytes <= s.opts.MaxLogsBytes-s.opts.MaxLogsBytes/8 &&
			s.failureLogs.files <= maxFiles-maxFiles/8 {
			return
		}
		s.removeLog(f)
	}
}

// listLogs lists the logs of failed VMs.
func (s *Store) listLogs() (all []logFile) {
	_ = fs.WalkDir(s.opts.Root.FS(), FailureLogsDir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && !strings.HasPrefix(e.Name(), tempPrefix) {
			if info, err := e.Info(); err == nil {
				all = append(all, logFile{name: name, size: info.Size(), modified: info.ModTime()})
			}
		}
		return nil
	})
	return all
}

// computeOverShare sets by how much the uploader of each log, sorted oldest first, exceeds its share.
func (s *Store) computeOverShare(all []logFile) {
	sums := map[string]areaUsage{}
	for i := len(all) - 1; i >= 0; i-- {
		f := &all[i]
		who := cmp.Or(s.uploaders[f.name], path.Dir(f.name))
		sum := sums[who]
		sum.files, sum.bytes = sum.files+1, sum.bytes+f.size
		sums[who] = sum
		use := max(float64(sum.files)/maxFiles, float64(sum.bytes)/float64(s.opts.MaxLogsBytes))
		f.overShare = max(0, use-1.0/logShares)
	}
}

// removeLog removes a log of a failed VM.
func (s *Store) removeLog(f logFile) {
	if err := s.opts.Root.Remove(f.name); err != nil {
		s.opts.Log.Warn("removing a VM failure log failed", "file", f.name, "error", err)
		return
	}
	s.addUsage(f.name, -1, -f.size)
	delete(s.uploaders, f.name)
	s.removeEmptyDirs(path.Dir(f.name))
}
