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
	"github.com/buildyard/buildyard/internal/layout"
)

// Options configures a registry. The zero value of a duration means its default.
type Options struct {
	Base    string       // storage directory; made when it is missing
	Version string       // shown in the status
	Address string       // of the API, for tools that find the storage in use; "": none
	Logger  *slog.Logger // nil means no log

	LayerLease      time.Duration // layers of a manifest stay that long after the last range request: 15 min
	GCGrace         time.Duration // layer files that no version needs are kept that long: 1 h
	TrashRetention  time.Duration // how long deleted data can be restored: 24 h
	IdlePushTimeout time.Duration // a push without requests is ended after: 24 h

	SquashInterval    time.Duration // how often Run looks for chains to squash: 1 min
	CompactPullsAfter int           // lines after which a log of pulls is written again: 4096

	MaxPushes             int           // pushes that are not committed, a quarter of them of one caller: 256
	MaxReservationPercent int           // percent of the free space that the pushes of one caller may reserve: 50
	EmptyPushTimeout      time.Duration // a push that has received nothing is ended after: 5 min
	MaxLogRows            int           // log rows accepted per minute, a quarter of them of one caller: 600000
	MaxLogRowsBytes       int64         // bytes of them: 256 MiB

	// PeerSums asks pushers for sums of decoded frames, and accepts them. They are compared when frames are received.
	PeerSums bool

	ReserveBytes int64 // bytes of a file that is released when the disk is full; Run creates it; 0: none
	ScrubRate    int64 // bytes a second at which Run verifies all layers; 0: never

	LogRetention time.Duration // how long central logs and those of failed VMs stay: 7 days
	MaxLogSize   int64         // bytes of the central logs, and of those of failed VMs: 1 GiB

	// Backend is the shared storage that Base is a local copy of; nil: Base is the storage. Close closes it.
	Backend Backend

	Now   func() time.Time // nil means time.Now
	Hooks layout.Hooks     // for tests
}

// Registry serves one storage. Its methods may be called from many goroutines.
type Registry struct {
	opts     Options
	dir      *layout.Dir
	store    blob.Store
	lockFile *os.File
	log      *slog.Logger

	aux              auxStorage
	deletedTemplates deletedTemplates

	// snapshot is the metadata that readers see. It is replaced as a whole, under write.
	snapshot atomic.Pointer[snapshot]
	// metadataMu is held during a change of metadata: read snapshot, write template.json, swap.
	metadataMu  sync.Mutex
	indexMemory *semaphore.Weighted // bytes of maxIndexMemory
	scanUploads *semaphore.Weighted // scan results that are being received
	// layerMutexes is locked for one layer while its file is completed, trashed or restored.
	layerMutexes layerMutexes

	metrics metrics

	scrubber         scrubber
	logRows          logRowLimiter
	lastTrafficNanos atomic.Int64 // epoch nanoseconds of the newest bytes of a push or a pull

	storageJob      storageJob
	reserveReleased atomic.Bool  // the reserve was released
	reserveMu       sync.Mutex   // held from the check of the free space to the beginning of the push
	trashBytes      atomic.Int64 // bytes in the trash when it was measured last

	gcMu          sync.Mutex // held during a collection; guards gcPausedUntil
	gcPausedUntil time.Time

	watchersMu sync.Mutex // guards watchers
	watchers   map[*func()]struct{}

	mu             sync.Mutex                   // guards the fields below; never held over I/O
	layerRefs      map[blob.Digest]int          // versions that need a layer
	layerPins      map[blob.Digest]int          // sessions that rely on a layer
	leasedUntil    map[blob.Digest]time.Time    // pulls may need a layer until then
	storedLayers   map[blob.Digest]*storedLayer // layer files of the store
	badLayers      map[blob.Digest]string       // layers that are referenced and missing, or damaged, with the problem
	retainedLayers map[string][]blob.Digest     // directories of damaged templates and the layers that they name
	sessions       map[string]*session
	// committedSessions are the sessions of pushes that were published, the oldest first.
	committedSessions []string
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
	store, err := o.openStore(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, o.closeBackend(), dir.Close(), lock.Close())
	}
	r := &Registry{
		opts: o, dir: dir, store: store, lockFile: lock, log: o.Logger,
		indexMemory: semaphore.NewWeighted(maxIndexMemory),
		scanUploads: semaphore.NewWeighted(MaxScanUploads),
		layerRefs:   map[blob.Digest]int{}, layerPins: map[blob.Digest]int{}, leasedUntil: map[blob.Digest]time.Time{},
		storedLayers: map[blob.Digest]*storedLayer{}, sessions: map[string]*session{},
		badLayers: map[blob.Digest]string{}, retainedLayers: map[string][]blob.Digest{},
	}
	r.logRows = logRowLimiter{maxRows: o.MaxLogRows, maxBytes: o.MaxLogRowsBytes, now: o.Now}
	if err := errors.Join(r.loadStorage(ctx), r.openAuxStorage()); err != nil { //nolint:contextcheck // its callbacks outlive ctx
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (o Options) withDefaults() Options {
	for d, def := range map[*time.Duration]time.Duration{
		&o.LayerLease: 15 * time.Minute, &o.GCGrace: time.Hour, &o.TrashRetention: 24 * time.Hour,
		&o.IdlePushTimeout: 24 * time.Hour,
		&o.SquashInterval:  time.Minute, &o.EmptyPushTimeout: 5 * time.Minute,
	} {
		if *d == 0 {
			*d = def
		}
	}
	o.CompactPullsAfter, o.MaxPushes = cmp.Or(o.CompactPullsAfter, defaultCompactPullsAfter),
		cmp.Or(o.MaxPushes, DefaultMaxPushes)
	o.MaxReservationPercent = cmp.Or(o.MaxReservationPercent, DefaultMaxReservationPercent)
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
	return errors.Join(r.aux.close(), r.opts.closeBackend(), r.dir.Close(), r.lockFile.Close())
}

// loadStorage reads the storage.
func (r *Registry) loadStorage(ctx context.Context) error {
	stored, err := r.store.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range stored {
		r.storedLayers[s.Digest] = &storedLayer{size: s.Size}
		if s.Problem != "" {
			r.badLayers[s.Digest] = s.Problem
		}
	}
	templates, damaged, err := r.dir.Templates()
	if err != nil {
		return err
	}
	snap := &snapshot{templates: make(map[string]*templateEntry, len(templates))}
	entries := make([]*templateEntry, len(templates))
	layout.ForEachParallel(len(templates), func(i int) { entries[i] = r.loadTemplate(&templates[i]) })
	for _, e := range entries {
		t := e.template
		snap.templates[t.ID] = e
		r.addReferences(t, +1)
		r.checkLayerSizes(ctx, t)
	}
	snap.damaged = r.removeStaged(damaged)
	for _, d := range snap.damaged {
		r.retainNamedLayers(layout.TemplatePath(d.ID))
	}
	aside, err := r.dir.QuarantinedNames()
	if err != nil {
		return err
	}
	for _, place := range aside {
		r.retainNamedLayers(place)
	}
	if err := r.loadScrub(); err != nil {
		return err
	}
	snap.sortTemplates()
	r.snapshot.Store(snap)
	if err := r.loadDeleted(); err != nil {
		return err
	}
	for _, d := range r.listDamage() {
		r.log.Warn("damaged template; run \"buildyard registry check\" for details", "template", d.ID, "version",
			d.Number, "problem", d.Problem)
	}
	r.measureTrash()
	return r.loadSessions(ctx)
}

// loadTemplate finishes what a crash left undone in a template's directory and reads the times of its pulls and
// the notes of its scans.
func (r *Registry) loadTemplate(t *layout.Template) *templateEntry {
	if err := r.dir.PruneTemplate(t); err != nil {
		r.log.Warn("removing leftovers from a template directory failed", "template", t.ID, "error", err)
	}
	last, err := r.dir.LastPulls(t.ID)
	if err != nil {
		r.log.Warn("reading the times of pulls failed", "template", t.ID, "error", err)
	}
	return newTemplateEntry(t, newPullTimes(last), r.readScanNotes(t.ID))
}

// checkLayerSizes records the layers of a template that are missing from both the store and the trash, and those
// whose size differs from the template. It reads no layer: the scrub verifies content.
func (r *Registry) checkLayerSizes(ctx context.Context, t *layout.Template) {
	for i := range t.Versions {
		for _, f := range t.Versions[i].Files {
			for _, l := range f.Layers {
				r.checkLayerSize(ctx, l)
			}
		}
	}
}

func (r *Registry) checkLayerSize(ctx context.Context, l layout.Layer) {
	root, err := blob.ParseDigest(l.Digest)
	if err != nil {
		return
	}
	if !r.hasStoredLayer(root) && !r.restoreLayer(ctx, root) {
		r.badLayers[root] = "is missing"
		return
	}
	if size := r.storedLayers[root].size; size != l.Size && r.badLayers[root] == "" {
		r.badLayers[root] = fmt.Sprintf("has %d bytes instead of %d", size, l.Size)
	}
}

// removeStaged removes the directories of new templates whose push was interrupted before its commit: they
// contain only what the push staged.
func (r *Registry) removeStaged(damaged []layout.DamagedTemplate) []layout.DamagedTemplate {
	kept := damaged[:0]
	for _, d := range damaged {
		removed, err := r.dir.RemoveStaged(d.ID)
		if err != nil {
			r.log.Warn("removing the leftovers of an interrupted push failed", "template", d.ID, "error", err)
		}
		if !removed {
			kept = append(kept, d)
		}
	}
	return kept
}
