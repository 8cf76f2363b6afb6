package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// settingPools is a record that every change of the pools rewrites, so that names and number are decided on the
// current state.
const settingPools = "pools"

// Placer is the part of the placer that pools use.
type Placer interface {
	BootAhead(ctx context.Context, term *record.Term, standbys []*farm.Instance) (int, error)
	Releases(standbys map[string]sched.Releasable, limit int) [][]string
	Exclusion(inst *farm.Instance, node string) sched.Filter
}

var _ Placer = (*placement.Placer)(nil)

// Options configure Pools. All fields are set.
type Options struct {
	// Resolve returns the version of a template with a tag, "" for the newest.
	Resolve func(ctx context.Context, template, tag string) (farm.TemplateRef, error)
	// Group returns a node group; farm.CodeNotFound when there is none.
	Group func(ctx context.Context, id string) (*farm.Group, int64, error)
	// Changes returns what a creation writes so that a repeated request is recognized.
	Changes func(ctx context.Context, answer any) ([]store.Change, error)
	Placer  Placer
	// NewInstance returns the instance of a standby.
	NewInstance func(pool *farm.Pool, ref farm.TemplateRef) *farm.Instance
	// AssignMACs assigns the instances their managed addresses, if there are any.
	AssignMACs func(instances []*farm.Instance) (release func())
	Paused     func() bool // maintenance mode
}

// Pools are the warm pools of a cloud.
type Pools struct {
	db   record.DB
	o    Options
	wake chan struct{} // has a value when the leader should look at the pools

	hits, earlyHits, misses metric.Counter
	slotMillis              metric.Counter

	mu     sync.Mutex                 // guards the fields below
	picked map[string]bool            // standbys that requests in progress claim
	states map[string]poolState       // pool id -> what the leader knows of it besides its record
	sums   map[string]*farm.PoolStats // since they were last stored; nil: another replica leads
}

// New returns the pools in a database.
func New(db record.DB, o Options) *Pools {
	return &Pools{
		db: db, o: o, wake: make(chan struct{}, 1),
		picked: map[string]bool{}, states: map[string]poolState{},
	}
}

// View is a pool with its standbys.
type View struct {
	*farm.Pool
	Stats    farm.PoolStats
	Wanted   int    // standbys that its schedule sets at this time
	Ready    int    // standbys that a start can claim
	Booting  int    // standbys that are not ready yet
	Problem  string // why it lacks standbys; "" for nothing, or not known by this replica
	Standbys []*farm.Instance
}

// View returns a pool with its standbys.
func (s *Pools) View(p *farm.Pool) View {
	v := View{Pool: p, Wanted: p.WantedAt(s.db.Now())}
	if stats, _, ok := s.db.Tables.PoolStats.Get(p.ID); ok {
		v.Stats = *stats
	}
	unusable := 0
	for _, inst := range s.db.Tables.Instances.Where(record.ByPool, p.ID) {
		if inst.State == farm.Terminated {
			continue
		}
		v.Standbys = append(v.Standbys, inst)
		switch {
		case inst.IsReady() && s.o.Placer.Exclusion(inst, inst.NodeID) != "":
			unusable++
		case inst.IsReady():
			v.Ready++
		case inst.IsBooting():
			v.Booting++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sums := s.sums[p.ID]; sums != nil {
		v.Stats = sum(v.Stats, *sums)
	}
	switch {
	case s.wanted(p) < v.Wanted:
		v.Problem = "its node group was deleted: change the group of the pool"
	case v.Ready < v.Wanted || s.states[p.ID].gone:
		v.Problem = s.states[p.ID].problem
		if v.Problem == "" && unusable > 0 {
			v.Problem = fmt.Sprintf("%d of its standbys are on nodes that take no starts now", unusable)
		}
	}
	return v
}

// List returns every pool, by name.
func (s *Pools) List() []View {
	var list []View
	for _, p := range s.db.Tables.Pools.All() {
		list = append(list, s.View(p))
	}
	slices.SortFunc(list, func(a, b View) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Get returns a pool; farm.CodeNotFound when there is none.
func (s *Pools) Get(ctx context.Context, id string) (View, error) {
	p, _, err := record.Lookup(ctx, s.db.Tables.Pools, id)
	if err != nil {
		return View{}, err
	}
	return s.View(p), nil
}

// Name returns the name of a pool, or its id where it does not exist.
func (s *Pools) Name(id string) string {
	if p, _, ok := s.db.Tables.Pools.Get(id); ok {
		return p.Name
	}
	return id
}

// Create creates a pool; answer returns what its creator receives.
func (s *Pools) Create(ctx context.Context, p farm.Pool, answer func(*farm.Pool) any) (*farm.Pool, error) {
	p.ID, p.Created = record.NewID(), s.db.Now()
	p.Updated = p.Created
	err := s.change(ctx, nil, &p, func() ([]store.Change, error) {
		if n := s.db.Tables.Pools.Len(); n >= farm.MaxPools {
			return nil, farm.Refused("Pool limit (%d) reached; delete one first", n)
		}
		changes, err := s.o.Changes(ctx, answer(&p))
		return append(changes, store.Put(s.db.Tables.Pools, p.ID, &p, store.IfAbsent)), err
	})
	return &p, err
}

// Update changes a pool; farm.CodeNotFound when there is none.
func (s *Pools) Update(ctx context.Context, id string, edit func(*farm.Pool)) error {
	old, rev, err := record.Lookup(ctx, s.db.Tables.Pools, id)
	if err != nil {
		return err
	}
	p := *old
	edit(&p)
	p.Updated = s.db.Now()
	return s.change(ctx, old, &p, func() ([]store.Change, error) {
		return []store.Change{store.Put(s.db.Tables.Pools, id, &p, store.IfRev(rev))}, nil
	})
}

// Delete removes a pool; the leader ends its standbys.
func (s *Pools) Delete(ctx context.Context, id string) error {
	_, rev, err := record.Lookup(ctx, s.db.Tables.Pools, id)
	if err != nil {
		return err
	}
	return s.db.Store.Commit(ctx, store.Delete(s.db.Tables.Pools, id, store.IfRev(rev)),
		store.Delete(s.db.Tables.PoolStats, id, store.Any))
}

// change checks a pool as it will be and writes it; old is nil for a new one. Other changes of the pools at the same
// time make it check again.
func (s *Pools) change(ctx context.Context, old, p *farm.Pool, changes func() ([]store.Change, error)) error {
	for range record.TxnAttempts {
		_, rev, _ := s.db.Tables.Settings.Get(settingPools)
		if err := s.db.UpToDate(ctx); err != nil { // else the record settingPools might be newer than the pools
			return farm.Unavailable(err, "The store cannot be reached; try again")
		}
		if err := s.check(ctx, old, p); err != nil {
			return err
		}
		list, err := changes()
		if err != nil {
			return err
		}
		list = append(list, store.Put(s.db.Tables.Settings, settingPools, &record.Setting{}, store.IfRev(rev)))
		if err = s.db.Store.Commit(ctx, list...); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return farm.Errorf(farm.CodeConflict, "Another request has changed the pools at the same time; try again")
}

// check returns why a pool is not valid, and notes the name of its template. A version that does not change need not
// exist: the pool can still be emptied.
func (s *Pools) check(ctx context.Context, old, p *farm.Pool) error {
	if uuid.Validate(p.Name) == nil {
		return farm.Invalid("name", "must not have the form of a pool ID (UUID)")
	}
	for _, other := range s.db.Tables.Pools.All() {
		switch {
		case other.ID == p.ID:
		case other.Name == p.Name:
			return farm.Refused("Pool %q already exists; choose another name", p.Name)
		case other.TemplateID == p.TemplateID && other.Tag == p.Tag && other.GroupID == p.GroupID:
			return farm.Refused("Pool %q already has this template, tag and group; change it instead", other.Name)
		}
	}
	if _, err := time.LoadLocation(p.TimeZone); err != nil || p.TimeZone == "Local" {
		return farm.Invalid("time_zone", "%q is not known: use a name like Europe/Berlin", farm.Clip(p.TimeZone, 64))
	}
	if len(p.Schedule) > farm.MaxPoolWindows {
		return farm.Invalid("schedule", "must have at most %d windows", farm.MaxPoolWindows)
	}
	for _, w := range p.Schedule {
		if err := w.Check(); err != nil {
			return err
		}
	}
	if p.GroupID != "" {
		if _, _, err := s.o.Group(ctx, p.GroupID); farm.CodeOf(err) == farm.CodeNotFound {
			return farm.Refused("Group %s not found", farm.Clip(p.GroupID, 64))
		} else if err != nil {
			return err
		}
	}
	if old != nil && old.TemplateID == p.TemplateID && old.Tag == p.Tag {
		return nil
	}
	ref, err := s.o.Resolve(ctx, p.TemplateID, p.Tag)
	p.TemplateName = ref.Name
	return err
}
