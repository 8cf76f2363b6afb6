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
	MaxFile  = 1 << 30  // bytes of one file
	MaxLog   = 64 << 20 // bytes of one log of a failed VM
	maxFiles = 20000    // of an area
	maxList  = 50000    // entries of a list: more than maxFiles files and their directories
	floor    = 256 << 20
	tempMark = ".upload-" // begins the names of files that are being written
)

// The default limits.
const (
	DefaultKeep     = 7 * 24 * time.Hour
	DefaultMaxLogs  = 1 << 30
	DefaultMaxBytes = 10 << 30
)

// Options configures a Store. The zero value of all but Root means a default.
type Options struct {
	Root     *os.Root      // the directory files/; Close closes it
	Keep     time.Duration // how long logs of failed VMs stay: DefaultKeep
	MaxLogs  int64         // bytes of the logs of failed VMs, the oldest go: DefaultMaxLogs
	MaxBytes int64         // bytes of all other files, beyond which uploads are refused: DefaultMaxBytes

	Full func() bool                           // reports that no uploads are accepted; nil: never
	Free func() (free, total int64, err error) // space on the disk; nil: enough
	Now  func() time.Time
	Sync func(*os.File) error // replaces fsync of a file or directory in tests
	Log  *slog.Logger
}

// Store is the files below one directory. Its methods may be called from many goroutines.
type Store struct {
	o Options

	mu    sync.Mutex // guards the fields below, and is held while names change
	logs  areaUsage
	other areaUsage
	swept time.Time
	// uploaders maps a file below Logs to the caller that uploaded it since the start. Other files are counted
	// by their directory.
	uploaders map[string]string
	underway  map[string]int64 // caller -> bytes of logs that they are uploading
}

// areaUsage counts the files and bytes of an area, including running uploads.
type areaUsage struct {
	files int
	bytes int64
}

// Open counts the files and removes the remains of interrupted uploads.
func Open(o Options) (*Store, error) {
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	o.MaxLogs, o.MaxBytes = cmp.Or(o.MaxLogs, DefaultMaxLogs), cmp.Or(o.MaxBytes, DefaultMaxBytes)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sync == nil {
		o.Sync = (*os.File).Sync
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{o: o, uploaders: map[string]string{}, underway: map[string]int64{}}
	err := fs.WalkDir(o.Root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == CentralLogs:
			return fs.SkipDir
		case e.IsDir() || !e.Type().IsRegular():
			return nil
		case strings.HasPrefix(e.Name(), tempMark):
			return o.Root.Remove(name)
		}
		info, err := e.Info()
		if err == nil {
			s.count(name, 1, info.Size())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	s.Tidy()
	return s, nil
}

// Close closes the directory.
func (s *Store) Close() error { return s.o.Root.Close() }

// areaOf returns the usage of the area that a name belongs to.
func (s *Store) areaOf(name string) *areaUsage {
	if area(name) == Logs {
		return &s.logs
	}
	return &s.other
}

func (s *Store) count(name string, files int, bytes int64) {
	h := s.areaOf(name)
	h.files += files
	h.bytes += bytes
}

// File is a file that is open for reading. It must be closed.
type File struct {
	*os.File
	Size     int64
	Modified time.Time
}

// File opens a file.
func (s *Store) File(name string) (*File, error) {
	info, err := isPlain(s.o.Root, name)
	if err != nil || info.IsDir() {
		return nil, farm.NotFound()
	}
	f, err := s.o.Root.Open(name)
	if err != nil {
		return nil, lost(err)
	}
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(farm.NotFound(), f.Close())
	}
	return &File{File: f, Size: info.Size(), Modified: info.ModTime()}, nil
}

// lost sets the exact message of a failed lookup.
func lost(err error) error {
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
	info, err := isPlain(s.o.Root, dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, farm.NotFound()
	}
	in, err := s.o.Root.Open(dir)
	if err != nil {
		return nil, lost(err)
	}
	defer in.Close()
	entries, err := in.ReadDir(maxList)
	if err != nil && !errors.Is(err, io.EOF) { // the end of an empty directory
		return nil, fmt.Errorf("list a directory: %w", err)
	}
	list := []api.StoredFile{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.IsDir() && !info.Mode().IsRegular() || Check(e.Name()) != nil {
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
	if err := writable(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := isPlain(s.o.Root, name)
	if err != nil {
		return err
	}
	if err := s.o.Root.Remove(name); err != nil {
		if info.IsDir() && !errors.Is(err, fs.ErrNotExist) {
			return farm.Refused("The directory %s is not empty", name)
		}
		return lost(err)
	}
	if !info.IsDir() {
		s.count(name, -1, -info.Size())
		delete(s.uploaders, name)
	}
	s.prune(path.Dir(name))
	return nil
}

// prune removes a directory and its parents while they are empty: directories are not counted. The caller holds
// mu.
func (s *Store) prune(dir string) {
	for dir != "." && dir != Logs && s.o.Root.Remove(dir) == nil {
		dir = path.Dir(dir)
	}
}

// writable refuses invalid names, and those of the log server.
func writable(name string) error {
	if err := Check(name); err != nil {
		return err
	}
	switch top := area(name); { // some file systems ignore case
	case strings.EqualFold(top, CentralLogs):
		return farm.Invalid("name", "files in %s are written only by the central logs", CentralLogs)
	case strings.EqualFold(top, Logs) && (top != Logs || top == name):
		return farm.Invalid("name", "%s is the directory of VM failure logs", Logs)
	}
	return nil
}

const sweepEvery = 10 * time.Minute

// Tidy removes expired logs of failed VMs. It does nothing if it ran a short time ago.
func (s *Store) Tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	if since := now.Sub(s.swept); since >= 0 && since < sweepEvery && !s.swept.IsZero() {
		return
	}
	s.swept = now
	if s.logs.files > 0 {
		s.sweep(now)
	}
}

// logFile is a file below Logs.
type logFile struct {
	name string
	size int64
	at   time.Time
	over float64 // by how much its uploader exceeds the share with it and later uploads; 0: not at all
}

// logShares is how many equal shares the logs of failed VMs have. The logs of an uploader over its share are
// removed first.
const logShares = 16

// sweep removes logs of failed VMs until there is capacity again: first the expired ones, then the oldest of
// the uploader that exceeds its share most, then the oldest of all.
func (s *Store) sweep(now time.Time) {
	all := s.logFiles()
	slices.SortFunc(all, func(a, b logFile) int { return a.at.Compare(b.at) })
	tooOld, _ := slices.BinarySearchFunc(all, now.Add(-s.o.Keep),
		func(f logFile, limit time.Time) int { return f.at.Compare(limit) })
	for _, f := range all[:tooOld] {
		s.drop(f)
	}
	all = all[tooOld:]
	s.measure(all)
	slices.SortStableFunc(all, func(a, b logFile) int { return cmp.Compare(b.over, a.over) })
	for _, f := range all {
		if s.logs.bytes <= s.o.MaxLogs-s.o.MaxLogs/8 && s.logs.files <= maxFiles-maxFiles/8 {
			return
		}
		s.drop(f)
	}
}

// logFiles lists the logs of failed VMs.
func (s *Store) logFiles() (all []logFile) {
	_ = fs.WalkDir(s.o.Root.FS(), Logs, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && !strings.HasPrefix(e.Name(), tempMark) {
			if info, err := e.Info(); err == nil {
				all = append(all, logFile{name: name, size: info.Size(), at: info.ModTime()})
			}
		}
		return nil
	})
	return all
}

// measure sets by how much the uploader of each log, sorted oldest first, exceeds its share.
func (s *Store) measure(all []logFile) {
	sums := map[string]areaUsage{}
	for i := len(all) - 1; i >= 0; i-- {
		f := &all[i]
		who := cmp.Or(s.uploaders[f.name], path.Dir(f.name))
		sum := sums[who]
		sum.files, sum.bytes = sum.files+1, sum.bytes+f.size
		sums[who] = sum
		use := max(float64(sum.files)/maxFiles, float64(sum.bytes)/float64(s.o.MaxLogs))
		f.over = max(0, use-1.0/logShares)
	}
}

// drop removes a log of a failed VM.
func (s *Store) drop(f logFile) {
	if err := s.o.Root.Remove(f.name); err != nil {
		s.o.Log.Warn("removing a VM failure log failed", "file", f.name, "error", err)
		return
	}
	s.count(f.name, -1, -f.size)
	delete(s.uploaders, f.name)
	s.prune(path.Dir(f.name))
}
