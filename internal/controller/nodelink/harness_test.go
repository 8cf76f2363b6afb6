package nodelink

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

const templateID = "11111111-2222-4333-8444-555555555555"

// credential is that of every node.
const credential = "secret"

// testLink is a link on an in-memory store, without the rest of a controller, inside a synctest
// bubble.
type testLink struct {
	*Link
	t         *testing.T
	instances *fakeInstances
	log       strings.Builder
}

// withLink runs a test in a bubble with a link.
func withLink(t *testing.T, test func(t *testing.T, l *testLink)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tables := record.NewTables(nil)
		st, err := store.Open(t.Context(), mem.New(), store.Options{Tables: tables.All()})
		if err != nil {
			t.Fatal(err)
		}
		l := &testLink{t: t, instances: &fakeInstances{}}
		db := record.DB{
			Store: record.NewStore(st, nil), Tables: tables, Now: func() time.Time { return time.Now().UTC() },
			Log: slog.New(slog.NewTextHandler(&l.log, nil)),
		}
		l.Link = New(db, Options{
			NodeTimeout: 2 * time.Minute, OrderResend: 5 * time.Second, OrphanReports: 30,
			OrphanAge: 150 * time.Second, DistributePulls: DefaultDistributePulls,
			Instances: l.instances, Placer: idle{}, Maintenance: idle{}, Pulls: idle{},
			IsLeader: func() bool { return true }, RetryMACs: func() {},
			PackageFor:   func(*farm.NodeInfo) (p api.AgentPackage, ok bool) { return p, false },
			UpdateKeys:   func() string { return "" },
			Announcement: func() *api.CloudAnnouncement { return &api.CloudAnnouncement{Key: "key"} },
			CountResults: func([]store.Change) {},
		})
		st.Subscribe(l.Sessions.Observe)
		defer func() {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, l)
	})
}

// addNode creates the record of a node and returns its id.
func (l *testLink) addNode() string {
	l.t.Helper()
	id, sum := uuid.NewString(), sha256.Sum256([]byte(credential))
	l.commit(store.Put(l.db.Tables.Nodes, id, &farm.Node{
		ID: id, State: farm.NodeActive, Credential: hex.EncodeToString(sum[:]),
	}, store.Any))
	return id
}

func (l *testLink) commit(changes ...store.Change) {
	l.t.Helper()
	if err := l.db.Store.Commit(l.t.Context(), changes...); err != nil {
		l.t.Fatal(err)
	}
	synctest.Wait()
}

// fakeInstances records the statuses that are written, or fails.
type fakeInstances struct {
	change  record.StatusChange
	err     error
	written []api.InstanceStatus
}

var _ Instances = (*fakeInstances)(nil)

func (f *fakeInstances) ChangeOf(api.InstanceStatus) record.StatusChange { return f.change }

func (f *fakeInstances) Apply(_ context.Context, _ string, statuses []api.InstanceStatus) error {
	if f.err == nil {
		f.written = append(f.written, statuses...)
	}
	return f.err
}

func (f *fakeInstances) Resume(context.Context, string) {}

// idle is the rest of a controller, which does nothing.
type idle struct{}

var (
	_ Placer      = idle{}
	_ Maintenance = idle{}
	_ PullCounter = idle{}
)

func (idle) Touch(string)                {}
func (idle) TouchAll()                   {}
func (idle) Reconsider(...[]string)      {}
func (idle) On() bool                    { return false }
func (idle) After(t time.Time) time.Time { return t }
func (idle) Pulled(string, int64)        {}
func (idle) PulledElsewhere(int64)       {}
func (idle) TotalPulled() int64          { return 0 }

func (idle) NodePulledElsewhere(string, int64) {}
