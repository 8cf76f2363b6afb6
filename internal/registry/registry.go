package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/disk"
	"github.com/buildyard/buildyard/internal/layout"
)

// Options configures a registry. The zero value of a duration means its default.
type Options struct {
	Base    string       // storage directory; made when it is missing
	Version string       // shown in the status
	Address string       // of the API, for tools that find the storage in use; "": none
	Logger  *slog.Logger // nil means no log

	Lease     time.Duration // layers of a manifest stay that long after the last range request: 15 min
	Grace     time.Duration // layer files that no version needs are kept that long: 1 h
	TrashKeep time.Duration // how long deleted data can be restored: 24 h
	IdlePush  time.Duration // a push without requests is ended after: 24 h

	SquashEvery time.Duration // how often Run looks for chains to squash: 1 min
	FoldPulls   int           // lines after which a log of pulls is written again: 4096

	MaxPushes       int           // pushes that are not committed, a quarter of them of one caller: 256
	MaxReservation  int           // percent of the free space that the pushes of one caller may reserve: 50
	EmptyPush       time.Duration // a push that has received nothing is ended after: 5 min
	MaxLogRows      int           // log rows accepted per minute, a quarter of them of one caller: 600000
	MaxLogRowsBytes int64         // bytes of them: 256 MiB

	Reserve   int64 // bytes of a file that is released when the disk is full; Run creates it; 0: none
	ScrubRate int64 // bytes a second at which Run verifies all layers; 0: never

	KeepLogs   time.Duration // how long central logs and those of failed VMs stay: 7 days
	MaxLogSize int64         // bytes of the central logs, and of those of failed VMs: 1 GiB

	Now   func() time.Time // nil means time.Now
	Hooks layout.Hooks     // for tests
}

// Registry serves one storage. Its methods may be called from many goroutines.
type Registry struct {
	o     Options
	dir   *layout.Dir
	store blob.Store
	lock  *os.File
	log   *slog.Logger

	beside  auxStorage
	deleted deleted

	// snap is the metadata that readers see. It is replaced as a whole, under write.
	snap atomic.Pointer[snapshot]
	// write is held during a change of metadata: read snapshot, write template.json, swap.
	write   sync.Mutex
	indexes *semaphore.Weighted // bytes of indexRoom
	drafts  *semaphore.Weighted // scan results that are being received
	// roots is locked for one layer while its file is completed, trashed or restored.
	roots keyedMutex

	metrics metrics

	scrub   scrubber
	rows    rowLimit
	traffic atomic.Int64 // epoch nanoseconds of the newest bytes of a push or a pull

	storageJob storageJob
	strained   atomic.Bool  // the reserve was released
	booking    sync.Mutex   // held from the check of the free space to the beginning of the push
	trashSize  atomic.Int64 // bytes in the trash when it was measured last

	pausing     sync.Mutex // held during a collection; guards pausedUntil
	pausedUntil time.Time

	watching sync.Mutex // guards watchers
	watchers map[*func()]struct{}

	mu       sync.Mutex                   // guards the fields below; never held over I/O
	refs     map[blob.Digest]int          // versions that need a layer
	pins     map[blob.Digest]int          // sessions that rely on a layer
	leases   map[blob.Digest]time.Time    // pulls may need a layer until then
	held     map[blob.Digest]*storedLayer // layer files of the store
	bad      map[blob.Digest]string       // layers that are referenced and missing, or damaged, with the problem
	kept     map[string][]blob.Digest     // directories of damaged templates and the layers that they name
	sessions map[string]*session
	// committed are the sessions of pushes that were published, the oldest first.
	committed []string
}

// storedLayer is a layer file of the store.
type storedLayer struct {
	size              int64
	unreferencedSince time.Time // since when it is unreferenced, as seen by collections; zero: it is referenced
}

// Open locks the storage, reads it and finishes what a crash left undone.
func Open(ctx context.Context, o Options) (*Registry, error) {
	o = o.withDefaults()
	dir, err := layout.Create(o.Base, o.Hooks)
	if err != nil {
		return nil, err
	}
	lock, err := lockStorage(o.Base, o.Address)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	r := &Registry{
		o: o, dir: dir, store: disk.New(dir), lock: lock, log: o.Logger, indexes: semaphore.NewWeighted(indexRoom),
		drafts: semaphore.NewWeighted(MaxDrafts),
		refs:   map[blob.Digest]int{}, pins: map[blob.Digest]int{}, leases: map[blob.Digest]time.Time{},
		held: map[blob.Digest]*storedLayer{}, sessions: map[string]*session{},
		bad: map[blob.Digest]string{}, kept: map[string][]blob.Digest{},
	}
	r.rows = rowLimit{rows: o.MaxLogRows, bytes: o.MaxLogRowsBytes, now: o.Now}
	if err := errors.Join(r.load(ctx), r.openAuxStorage()); err != nil { //nolint:contextcheck // its callbacks outlive ctx
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (o Options) withDefaults() Options {
	for d, def := range map[*time.Duration]time.Duration{
		&o.Lease: 15 * time.Minute, &o.Grace: time.Hour, &o.TrashKeep: 24 * time.Hour, &o.IdlePush: 24 * time.Hour,
		&o.SquashEvery: time.Minute, &o.EmptyPush: 5 * time.Minute,
	} {
		if *d == 0 {
			*d = def
		}
	}
	o.FoldPulls, o.MaxPushes = cmp.Or(o.FoldPulls, foldPulls), cmp.Or(o.MaxPushes, DefaultMaxPushes)
	o.MaxReservation = cmp.Or(o.MaxReservation, DefaultMaxReservation)
	o.MaxLogRows, o.MaxLogRowsBytes = cmp.Or(o.MaxLogRows, DefaultMaxLogRows),
		cmp.Or(o.MaxLogRowsBytes, DefaultMaxLogBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Close releases the storage. Running pushes fail and can be resumed after the next Open.
func (r *Registry) Close() error {
	r.CancelStorageJob()
	return errors.Join(r.beside.close(), r.dir.Close(), r.lock.Close())
}

// load reads the storage.
func (r *Registry) load(ctx context.Context) error {
	stored, err := r.store.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range stored {
		r.held[s.Root] = &storedLayer{size: s.Size}
		if s.Problem != "" {
			r.bad[s.Root] = s.Problem
		}
	}
	templates, damaged, err := r.dir.Templates()
	if err != nil {
		return err
	}
	snap := &snapshot{templates: make(map[string]*entry, len(templates))}
	entries := make([]*entry, len(templates))
	layout.Each(len(templates), func(i int) { entries[i] = r.loadTemplate(&templates[i]) })
	for _, e := range entries {
		t := e.t
		snap.templates[t.ID] = e
		r.reference(t, +1)
		r.checkSizes(ctx, t)
	}
	snap.damaged = r.dropStaged(damaged)
	for _, d := range snap.damaged {
		r.keepNamed(layout.TemplatePath(d.ID))
	}
	aside, err := r.dir.QuarantinedNames()
	if err != nil {
		return err
	}
	for _, place := range aside {
		r.keepNamed(place)
	}
	if err := r.loadScrub(); err != nil {
		return err
	}
	snap.sort()
	r.snap.Store(snap)
	if err := r.loadDeleted(); err != nil {
		return err
	}
	for _, d := range r.damage() {
		r.log.Warn("damaged template; run \"buildyard registry check\" for details", "template", d.ID, "version",
			d.Number, "problem", d.Problem)
	}
	r.measureTrash()
	return r.loadSessions(ctx)
}

// loadTemplate finishes what a crash left undone in a template's directory and reads the times of its pulls and
// the notes of its scans.
func (r *Registry) loadTemplate(t *layout.Template) *entry {
	if err := r.dir.Prune(t); err != nil {
		r.log.Warn("removing leftovers from a template directory failed", "template", t.ID, "error", err)
	}
	last, err := r.dir.Pulls(t.ID)
	if err != nil {
		r.log.Warn("reading the times of pulls failed", "template", t.ID, "error", err)
	}
	return newEntry(t, newPulls(last), r.readScans(t.ID))
}

// checkSizes records the layers of a template that are missing from both the store and the trash, and those
// whose size differs from the template. It reads no layer: the scrub verifies content.
func (r *Registry) checkSizes(ctx context.Context, t *layout.Template) {
	for i := range t.Versions {
		for _, f := range t.Versions[i].Files {
			for _, l := range f.Layers {
				r.checkSize(ctx, l)
			}
		}
	}
}

func (r *Registry) checkSize(ctx context.Context, l layout.Layer) {
	root, err := blob.ParseDigest(l.Root)
	if err != nil {
		return
	}
	if !r.holds(root) && !r.restore(ctx, root) {
		r.bad[root] = "is missing"
		return
	}
	if size := r.held[root].size; size != l.Size && r.bad[root] == "" {
		r.bad[root] = fmt.Sprintf("has %d bytes instead of %d", size, l.Size)
	}
}

// dropStaged removes the directories of new templates whose push was interrupted before its commit: they
// contain only what the push staged.
func (r *Registry) dropStaged(damaged []layout.Damage) []layout.Damage {
	kept := damaged[:0]
	for _, d := range damaged {
		removed, err := r.dir.RemoveStaged(d.ID)
		if err != nil {
			r.log.Warn("removing leftovers of a damaged template failed", "template", d.ID, "error", err)
		}
		if !removed {
			kept = append(kept, d)
		}
	}
	return kept
}
