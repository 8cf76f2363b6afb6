package authstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/store"
)

// Tables are the record tables, to be opened with the store that Open gets.
type Tables struct {
	keys   *keyTable
	nonces *nonceTable
	grants *grantTable
	ring   *ringTable
}

// NewTables makes the empty tables.
func NewTables() *Tables {
	return &Tables{newKeyTable(), newNonceTable(), newGrantTable(), newRingTable()}
}

// All returns every table, for opening the store.
func (t *Tables) All() []store.AnyTable {
	return []store.AnyTable{t.keys, t.nonces, t.grants, t.ring}
}

// Stores is what the services of one cloud share. A process makes one over its store; a
// controller and a registry in one process are both given this one, so that a key, a session
// and a used secret are the same at both. Grants are each service's own.
type Stores struct {
	keys   *Keys
	nonces *Nonces
	ring   *keyRing
	grants map[farm.Service]*Grants
	log    *slog.Logger
}

// Open makes the stores over an open store and its tables, and the signing keys when there
// are none. Records that cannot be read are an error that names them; nothing is changed.
func Open(ctx context.Context, st *store.Store, t *Tables, log *slog.Logger) (*Stores, error) {
	s := &Stores{
		keys:   &Keys{store: st, table: t.keys},
		nonces: &Nonces{store: st, table: t.nonces, maxRemembered: auth.MaxNonces, maxPrunedPerCall: maxPruned},
		ring:   &keyRing{store: st, table: t.ring, log: log},
		grants: map[farm.Service]*Grants{},
		log:    log,
	}
	for _, service := range []farm.Service{farm.ServiceController, farm.ServiceRegistry} {
		s.grants[service] = newGrants(st, t.grants, service, log)
	}
	if err := s.checkRecords(); err != nil {
		return nil, fmt.Errorf("records of API keys or permissions are damaged; restore a backup of the store: %w", err)
	}
	cancel := st.Subscribe(s.handleEvents) // before anything is read: no change may come in between
	if err := s.loadAll(ctx); err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

// loadAll loads what is not read with each use.
func (s *Stores) loadAll(ctx context.Context) error {
	if err := s.ring.open(ctx); err != nil {
		return err
	}
	for _, g := range s.grants {
		g.reloadAndNotify()
	}
	return nil
}

// maxNamedRecords bounds how many records that cannot be read are named.
const maxNamedRecords = 5

// checkRecords returns which records cannot be read.
func (s *Stores) checkRecords() error {
	var bad []error
	for id, r := range s.keys.table.All() {
		if err := keyDamage(id, r); err != nil {
			bad = append(bad, err)
		}
	}
	for id := range s.nonces.table.All() {
		if _, _, err := parseNonce(id); err != nil {
			bad = append(bad, unreadable(kindNonce, id, err))
		}
	}
	for _, g := range s.grants {
		if err := g.checkReadable(); err != nil {
			bad = append(bad, err)
		}
	}
	if _, _, err := s.ring.currentKeys(); err != nil && !errors.Is(err, errNoRing) {
		bad = append(bad, err)
	}
	if more := len(bad) - maxNamedRecords; more > 0 {
		bad = append(bad[:maxNamedRecords], fmt.Errorf("and %d more errors", more))
	}
	return errors.Join(bad...)
}

// Keys returns the API keys.
func (s *Stores) Keys() *Keys { return s.keys }

// Nonces returns the used nonces.
func (s *Stores) Nonces() *Nonces { return s.nonces }

// Grants returns the grants of a service.
func (s *Stores) Grants(service farm.Service) *Grants { return s.grants[service] }

// Signer returns the signer of all sessions. It follows the signing keys that all replicas
// share.
func (s *Stores) Signer() *auth.Signer { return s.ring.signer }

// PruneExpired removes expired records, a bounded number per call, and returns their number. The replica
// that holds the lease should call it every few seconds; concurrent calls are harmless.
func (s *Stores) PruneExpired(ctx context.Context, now time.Time) (int, error) {
	if err := s.ring.ensureKeys(ctx); err != nil {
		return 0, err
	}
	n, err := s.nonces.pruneExpired(ctx, now)
	for _, g := range s.grants {
		parts, gerr := g.pruneParts(ctx, now)
		n, err = n+parts, errors.Join(err, gerr)
	}
	return n, err
}

// WaitConsistent returns when this process has read everything that any replica had acknowledged before the
// call.
func (s *Stores) WaitConsistent(ctx context.Context) error {
	if err := s.ring.store.Barrier(ctx); err != nil {
		return err
	}
	return s.ring.store.WaitDelivered(ctx)
}

// Intervals of the background jobs: expired nonces are removed soon, since they use memory; expired
// API keys are kept for a month, and signing keys are used as long.
const (
	noncePruneInterval = 5 * time.Second
	keyPruneInterval   = time.Hour
)

// Jobs returns the background jobs for keys, which are those of s, to be run by one replica at a
// time.
func (s *Stores) Jobs(keys *auth.APIKeys) []periodic.Job {
	return []periodic.Job{
		{What: "used secrets and permissions", Every: noncePruneInterval, Do: func(ctx context.Context) error {
			_, err := s.PruneExpired(ctx, time.Now())
			return err
		}},
		{What: "API keys that have expired", Every: keyPruneInterval, Do: func(ctx context.Context) error {
			_, err := keys.PruneExpired(ctx)
			return err
		}},
		{What: "signing keys", Every: keyPruneInterval, Do: s.ring.rotateIfOld},
	}
}

// handleEvents follows the changes of all replicas, this one included.
func (s *Stores) handleEvents(events []store.Event) {
	ring, grants := false, map[farm.Service]bool{}
	for _, ev := range events {
		switch ev.Kind {
		case kindKey:
			s.handleKeyEvent(ev)
		case kindRing:
			ring = true
		case kindGrant:
			service, what, _ := strings.Cut(ev.ID, "/")
			// a new part comes before the record that names it
			if ev.Old != nil || !strings.HasPrefix("/"+what, partDir) {
				grants[farm.Service(service)] = true
			}
		}
	}
	if ring {
		s.ring.updateSigner()
	}
	for service, g := range s.grants {
		if grants[service] {
			g.reloadAndNotify()
		}
	}
}

func (s *Stores) handleKeyEvent(ev store.Event) {
	if r, ok := ev.New.(*cachedRecord[farm.APIKey]); ok {
		if err := keyDamage(ev.ID, r); err != nil {
			s.log.Error("unreadable API key record ignored", "error", err)
		}
	}
	if ev.Old != nil {
		s.keys.notifyWatchers(ev.ID)
	}
}

// waitDelivered returns when the watchers have seen what this process has committed, on which the callers of
// a change rely.
func waitDelivered(ctx context.Context, st *store.Store) error {
	if err := st.WaitDelivered(ctx); err != nil {
		return fmt.Errorf("change stored, but waiting for its watch event failed: %w", err)
	}
	return nil
}
