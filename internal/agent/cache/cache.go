// Package cache stores the template versions that a node has pulled, each in a directory named by
// its content ID, and evicts old versions for new ones.
//
// It is not the store of local templates, and it knows neither instances nor hypervisors: a holder
// is just a name that keeps a version from being removed.
//
// Invariant: a listed version is complete and durable, and a version that has a holder, or that
// another version is based on, is never removed.
package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	factFile    = "version.json" // written last before a version is listed
	partSuffix  = ".partial"     // a pull that is in progress or was interrupted
	goneSuffix  = ".gone"        // being removed
	configFile  = "config.json"  // of the template, as the source leaves it
	nvramFile   = "nvram"        // of the template, when it has one
	staleAfter  = 24 * time.Hour // of an interrupted pull that was not requested again
	maxFileRead = 4 << 20
)

// Ref identifies a version to pull.
type Ref struct {
	Registry   string // address to pull from
	TemplateID string
	Name       string // of the template
	Tag        string
	Version    int
	ContentID  string
}

// Source pulls versions.
type Source interface {
	// SpaceNeed returns the disk space that the version needs, and what of have it is made from.
	SpaceNeed(ctx context.Context, ref Ref, have LocalContent) (SpaceNeed, error)
	// Fetch fills p.Dir with the version: config.json and its files, and describes each file by its
	// name. It resumes what an interrupted Fetch of the same version left there.
	Fetch(ctx context.Context, p Pull) (map[string]BuiltFile, error)
}

// LocalContent is the content on this node: chain ID -> the disk or file with it.
type LocalContent map[string]diskfile.Disk

// BuiltFile describes one file that a Source has pulled.
type BuiltFile struct {
	ChainID     string            // chain ID of its content
	Format      string            // of the file as it is now: "raw", "qcow2"; "" = as the configuration describes it
	Form        transfer.FileForm // "" means transfer.FormFlat
	BaseChainID string            // of an overlay: chain ID of the content in Pull.Have that it is based on
}

// SpaceNeed is the disk space that a version needs.
type SpaceNeed struct {
	Bytes     int64    // that it may use in addition to what it is made from
	ChainIDs  []string // chain IDs of the local content that it is made from
	LazyBytes int64    // to be fetched, of a version that can be pulled lazily; otherwise 0
	Lazy      LazyMode // by the version's configuration; "": by that of the node
}

// Pull describes what a Source has to pull, and where to.
type Pull struct {
	Ref      Ref
	DestDir  string
	Local    LocalContent  // to be linked, cloned or used as a base
	Progress func(float64) // called with 0..1, from one goroutine at a time
	// OnPartial may be called once, with what other nodes may read while the pull runs.
	OnPartial func(*transfer.Partial)
}

// Options configure a Cache.
type Options struct {
	Dir     string
	Source  Source
	Reserve bytesize.DiskReserve // space that templates must leave free
	// DiskSpace returns the free and all bytes of Dir's file system; nil asks the system.
	DiskSpace func() (free, total int64, err error)
	Logger    *slog.Logger     // nil: no log
	Now       func() time.Time // nil: time.Now
	Lazy      *LazyPulls       // nil: no version is pulled lazily
}

// Cache is the cache of one node. It may be used from many goroutines.
type Cache struct {
	opts       Options
	metrics    metrics
	life       context.Context // ends at Close
	end        context.CancelFunc
	evictionMu sync.Mutex // held during an eviction; taken before mu

	mu              sync.Mutex // guards the fields below
	entries         map[string]*entry
	pins            map[string]map[string]struct{} // content ID -> holders
	pulls           map[string]*sharedPull         // content ID -> pull in progress
	lazyPulls       map[string]*lazyPull           // content ID -> pull whose process runs
	pullRate        float64                        // of recent pulls, in bytes a second
	entryChanges    int                            // of entries, counted from 1
	measuredChanges int                            // value of changes at which taken was measured
	usedBytes       int64                          // bytes that all versions use
	runningPulls    sync.WaitGroup                 // of pulls that run
}

// entry is a version on disk. It is also the content of factFile.
type entry struct {
	Ref        Ref             `json:"ref"`
	SizeBytes  int64           `json:"size"`            // bytes allocated, including shared ones
	Files      map[string]File `json:"files,omitempty"` // by name, where something is known about them
	usedAt     time.Time
	inodeBytes map[host.Inode]int64 // of its files
}

// contentIDPattern is the form of a content ID: it becomes a directory name.
var contentIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// Open reads the cache in o.Dir and removes what a killed agent left half removed. Interrupted
// pulls stay, to be resumed.
func Open(o Options) (*Cache, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.DiskSpace == nil {
		o.DiskSpace = func() (int64, int64, error) { return host.DiskSpace(o.Dir) }
	}
	c := &Cache{
		opts: o, entries: map[string]*entry{},
		pins: map[string]map[string]struct{}{}, pulls: map[string]*sharedPull{}, entryChanges: 1,
		lazyPulls: map[string]*lazyPull{}, pullRate: firstRate,
	}
	c.life, c.end = context.WithCancel(context.Background())
	err := os.MkdirAll(o.Dir, 0o700)
	if err == nil {
		// Disks and memory of guests must not be readable by other users of this host, nor by a
		// hypervisor that a guest has compromised.
		err = os.Chmod(o.Dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("open template cache: %w", err)
	}
	if err := c.loadEntries(); err != nil {
		return nil, fmt.Errorf("open template cache: %w", err)
	}
	return c, nil
}

func (c *Cache) loadEntries() error {
	list, err := os.ReadDir(c.opts.Dir)
	if err != nil {
		return err
	}
	for _, item := range list {
		name := item.Name()
		switch {
		case strings.HasSuffix(name, goneSuffix):
			if err := os.RemoveAll(c.path(name)); err != nil {
				return err
			}
		case strings.HasSuffix(name, partSuffix) || !item.IsDir() || !contentIDPattern.MatchString(name):
		default:
			e, err := c.readEntry(name)
			if errors.Is(err, fs.ErrNotExist) && c.isPulledLazily(name) {
				continue // see ResumeLazyPulls
			}
			if err != nil {
				c.opts.Logger.Error("unreadable cached version removed", "content", name, "error", err)
				if err := c.removeDir(name); err != nil {
					return err
				}
				continue
			}
			c.entries[name] = e
		}
	}
	return c.pruneWithoutBase()
}

// isPulledLazily reports whether a directory is that of a lazy pull.
func (c *Cache) isPulledLazily(name string) bool {
	_, err := os.Stat(c.path(name) + lazySuffix)
	return err == nil
}

// pruneWithoutBase removes versions whose base is missing.
func (c *Cache) pruneWithoutBase() error {
	for found := true; found; {
		found = false
		for id, e := range c.entries {
			if c.isBaseCachedLocked(e) {
				continue
			}
			c.opts.Logger.Error("cached version removed: parent version not found", "content", id)
			if err := c.removeDir(id); err != nil {
				return err
			}
			delete(c.entries, id)
			found = true
		}
	}
	return nil
}

func (c *Cache) readEntry(id string) (*entry, error) {
	var e entry
	file := filepath.Join(c.path(id), factFile)
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, err
	}
	if e.Ref.ContentID != id {
		return nil, fmt.Errorf("cache directory %s has the content of version %q", id, e.Ref.ContentID)
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	e.usedAt, e.inodeBytes = info.ModTime(), host.AllocatedByInode(c.path(id))
	return &e, nil
}

// Inspect returns the versions in a cache's directory without changing anything, for a reader
// concurrent with a running agent. A missing directory is an empty cache.
func Inspect(dir string) ([]api.NodeTemplate, error) {
	c := &Cache{opts: Options{Dir: dir}, entries: map[string]*entry{}}
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list template cache: %w", err)
	}
	for _, item := range list {
		if e, err := c.readEntry(item.Name()); err == nil && contentIDPattern.MatchString(item.Name()) {
			c.entries[item.Name()] = e
		}
	}
	return c.List(), nil
}

func (c *Cache) path(name string) string { return filepath.Join(c.opts.Dir, name) }

// removeDir removes a directory, such that a kill in between never leaves half of it under its name.
func (c *Cache) removeDir(name string) error {
	gone := c.path(name) + goneSuffix
	if err := os.Rename(c.path(name), gone); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

// Close cancels the running pulls and waits for them. What they have pulled stays. The processes of lazy pulls
// continue.
func (c *Cache) Close() error {
	c.end()
	c.mu.Lock()
	for _, f := range c.pulls {
		f.cancel()
	}
	c.mu.Unlock()
	c.runningPulls.Wait()
	return nil
}

// Has reports whether a version is completely in the cache.
func (c *Cache) Has(contentID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[contentID] != nil
}

// Pin keeps a version, cached or yet to be pulled, from being removed until the same holder unpins
// it. Pinning twice is the same as pinning once.
func (c *Cache) Pin(contentID, holder string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pinLocked(contentID, holder)
}

func (c *Cache) pinLocked(contentID, holder string) {
	if c.pins[contentID] == nil {
		c.pins[contentID] = map[string]struct{}{}
	}
	c.pins[contentID][holder] = struct{}{}
	c.touchLocked(contentID)
}

// Unpin releases a holder's pin of a version.
func (c *Cache) Unpin(contentID, holder string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touchLocked(contentID)
	c.unpinLocked(contentID, holder)
}

// unpinLocked releases a pin. It does not count as a use of the version.
func (c *Cache) unpinLocked(contentID, holder string) {
	delete(c.pins[contentID], holder)
	if len(c.pins[contentID]) == 0 {
		delete(c.pins, contentID)
	}
	if f := c.pulls[contentID]; f != nil {
		c.abandonUnwantedLocked(f)
	}
}

// touchLocked records a use; it outlives a restart as the modification time of the fact file.
func (c *Cache) touchLocked(contentID string) {
	e := c.entries[contentID]
	if e == nil {
		return
	}
	e.usedAt = c.opts.Now()
	if err := os.Chtimes(filepath.Join(c.path(contentID), factFile), e.usedAt, e.usedAt); err != nil {
		c.opts.Logger.Warn("storing the last use of a cached version failed", "content", contentID, "error", err)
	}
}

// List returns the cached versions, ordered by content ID.
func (c *Cache) List() []api.NodeTemplate {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]api.NodeTemplate, 0, len(c.entries))
	for id, e := range c.entries {
		out = append(out,
			api.NodeTemplate{ID: e.Ref.TemplateID, Name: e.Ref.Name, Tag: e.Ref.Tag, ContentID: id, Size: e.SizeBytes})
	}
	slices.SortFunc(out, func(a, b api.NodeTemplate) int { return strings.Compare(a.ContentID, b.ContentID) })
	return out
}

// UsedBytes returns the bytes that all versions use; shared bytes count once.
func (c *Cache) UsedBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.measuredChanges == c.entryChanges {
		return c.usedBytes
	}
	dirs, now := make([]string, 0, len(c.entries)), c.entryChanges
	for id := range c.entries {
		dirs = append(dirs, c.path(id))
	}
	c.mu.Unlock() // with many files to measure, it takes a while
	taken := host.DiskUsage(dirs...)
	c.mu.Lock()
	if now == c.entryChanges {
		c.usedBytes, c.measuredChanges = taken, now
	}
	return taken
}

// listPulled lists a version that is complete in a directory, its own or the partial one. The caller has pinned its
// base.
func (c *Cache) listPulled(ref Ref, files map[string]File, dir string) error {
	e := &entry{Ref: ref, SizeBytes: host.AllocatedBytes(dir), Files: files, usedAt: c.opts.Now()}
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err := datadir.WriteFile(filepath.Join(dir, factFile), raw); err != nil {
		return err
	}
	if dir != c.path(ref.ContentID) {
		if err := os.Rename(dir, c.path(ref.ContentID)); err != nil {
			return err
		}
	}
	if err := datadir.SyncDir(c.opts.Dir); err != nil {
		return err
	}
	e.inodeBytes = host.AllocatedByInode(c.path(ref.ContentID))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[ref.ContentID] = e
	c.entryChanges++
	c.touchLocked(ref.ContentID)
	return nil
}
