package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/jointokens"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// testNodes are nodes without the rest of a controller.
type testNodes struct {
	*Nodes
	t      *testing.T
	link   *fakeLink
	events []farm.EventName
	failed []string // instances whose node was removed
}

// open returns the nodes of an empty cloud.
func open(t *testing.T) *testNodes {
	t.Helper()
	n := &testNodes{t: t, link: &fakeLink{}}
	db := recordtest.Open(t)
	tokens, err := jointokens.New(t.Context(), db, jointokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n.Nodes = New(db, Options{
		RegistryAddress: "http://registry", UpdateKeys: func() string { return "keys" },
		Announcement: func() *api.CloudAnnouncement { return &api.CloudAnnouncement{Key: "key"} },
		Link:         n.link, Sessions: n.link, Tokens: tokens,
		Orphans:     func(string) (sched.Load, bool) { return sched.Load{}, true },
		PeerReports: func(string) (int, bool) { return 0, false },
		OrphanedVMs: func(*farm.Node) []record.OrphanedVM { return nil },
		Devices: func(nodes ...string) [][]farm.USBDevice {
			list := make([][]farm.USBDevice, len(nodes))
			for i, id := range nodes {
				list[i] = db.Tables.NodeInfo(id).USBDevices
			}
			return list
		},
		ResolveGroups: func(_ context.Context, names []string) (ids []string, checks []store.Change, _ error) {
			for _, name := range names {
				checks = append(checks, store.Check(db.Tables.Groups, name, store.IfAbsent))
			}
			return names, checks, nil
		},
		FailInstance: func(_ context.Context, id string) error {
			n.failed = append(n.failed, id)
			return farm.NotFound()
		},
		WithEvent: n.withEvent,
	})
	n.link.nodes = n.Nodes
	return n
}

// withEvent notes the name of an event.
func (n *testNodes) withEvent(w store.Writer, event func() farm.Event) store.Writer {
	return notingWriter{w, func() { n.events = append(n.events, event().Name) }}
}

type notingWriter struct {
	store.Writer
	note func()
}

func (w notingWriter) Commit(ctx context.Context, changes ...store.Change) error {
	w.note()
	return w.Writer.Commit(ctx, changes...)
}

// join lets a node join with the join token.
func (n *testNodes) join(req api.JoinRequest) api.JoinAnswer {
	n.t.Helper()
	req.Protocol, req.Token = api.LinkProtocol, n.JoinToken()
	answer, err := n.Join(n.t.Context(), req)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer
}

// node returns the record of a node.
func (n *testNodes) node(id string) *farm.Node {
	n.t.Helper()
	view, err := n.Get(n.t.Context(), id)
	if err != nil {
		n.t.Fatal(err)
	}
	return view.Node
}

// addNode joins an Active node that has described itself.
func (n *testNodes) addNode(info farm.NodeInfo) string {
	n.t.Helper()
	id := n.join(api.JoinRequest{Name: "one", Host: "10.0.0.1"}).NodeID
	node := n.node(id).Clone()
	node.State, node.StateReason, node.StateSince, info.NodeID = farm.NodeActive, "", time.Time{}, id
	n.commit(store.Put(n.db.Tables.Nodes, id, node, store.Any), store.Put(n.db.Tables.Infos, id, &info, store.Any))
	return id
}

func (n *testNodes) commit(changes ...store.Change) {
	n.t.Helper()
	recordtest.Commit(n.t, n.db, changes...)
}

func (n *testNodes) wantEvents(want ...farm.EventName) {
	n.t.Helper()
	if !slices.Equal(n.events, want) {
		n.t.Errorf("events %v, want %v", n.events, want)
	}
	n.events = nil
}

func wantRefused(t *testing.T, err error, code farm.Code, text string) {
	t.Helper()
	if farm.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%v, want %s %q", err, code, text)
	}
}

// fakeLink knows the nodes by their records.
type fakeLink struct {
	nodes   *Nodes
	dropped []string
	busy    error // of CountWrite
}

var (
	_ Link     = (*fakeLink)(nil)
	_ Sessions = (*fakeLink)(nil)
)

func (l *fakeLink) Authenticate(id, credential string) (*farm.Node, error) {
	node, _, ok := l.nodes.db.Tables.Nodes.Get(id)
	if !ok || node.Credential != digest(credential) {
		return nil, farm.Errorf(farm.CodeUnauthenticated, "unknown node ID or wrong credential")
	}
	return node, nil
}

func (l *fakeLink) Usage(*farm.Node) (api.Usage, time.Time) { return api.Usage{CPU: 0.5}, time.Time{} }

func (l *fakeLink) UpdateStage(*farm.Node) string { return "" }

func (l *fakeLink) ClockOffset(string) (time.Duration, bool) { return 0, false }

func (l *fakeLink) CountWrite(*farm.Node) error { return l.busy }

func (l *fakeLink) Drop(id string) { l.dropped = append(l.dropped, id) }
