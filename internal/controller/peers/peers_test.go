package peers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/controller/peers"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const content = "content"

// addNode adds a node that serves versions to others.
func addNode(t *testing.T, db record.DB, id, address string, groups []string, contents ...string) *farm.Node {
	t.Helper()
	node := &farm.Node{ID: id, Host: "10.0.0." + id, State: farm.NodeActive, Groups: groups}
	info := &farm.NodeInfo{NodeID: id, PeerAddress: address, PeerKey: "key-" + id}
	for _, c := range contents {
		info.Templates = append(info.Templates, farm.NodeTemplate{ID: "template", ContentID: c})
	}
	recordtest.Commit(t, db, store.Put(db.Tables.Nodes, id, node, store.Any),
		store.Put(db.Tables.Infos, id, info, store.Any))
	return node
}

func idsOf(list []api.Peer, pulling bool) (ids []string) {
	for _, p := range list {
		if p.Pulling == pulling {
			ids = append(ids, p.NodeID)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestFor: a node is told the nodes of its groups that have a version or pull it, with tokens for itself.
func TestFor(t *testing.T) {
	db := recordtest.Open(t)
	now := time.Unix(1_800_000_000, 0)
	db.Now = func() time.Time { return now }
	key, err := cloudkey.New()
	if err != nil {
		t.Fatal(err)
	}
	refused := ""
	p := peers.New(db, peers.Options{
		Sign: key.SignPeerToken, AppendEvents: func(context.Context, ...farm.Event) error { return nil },
		MayPull: func(_ context.Context, node *farm.Node, _ string) error {
			if node.ID == refused {
				return farm.Errorf(farm.CodeForbidden, "no order")
			}
			return nil
		},
	})
	site := []string{"site"}
	reader, second := addNode(t, db, "1", ":8093", site), addNode(t, db, "2", ":8093", site)
	addNode(t, db, "3", ":8093", []string{"other", "site"}, "x", content)
	addNode(t, db, "4", "192.0.2.4:1", site, content)
	addNode(t, db, "5", ":8093", []string{"other"}, content)
	addNode(t, db, "6", "", site, content)
	addNode(t, db, "7", ":8093", site, "x")
	offline := addNode(t, db, "8", ":8093", site, content).Clone()
	offline.State = farm.NodeOffline
	recordtest.Commit(t, db, store.Put(db.Tables.Nodes, "8", offline, store.Any))
	request := func(node *farm.Node, excluded ...string) []api.Peer {
		t.Helper()
		got, err := p.For(t.Context(), node, content, excluded)
		if err != nil {
			t.Fatal(err)
		}
		return got.Peers
	}
	list := request(reader)
	if got := idsOf(list, false); !slices.Equal(got, []string{"3", "4"}) || len(list) != 2 {
		t.Fatalf("complete ones are %v of %+v", got, list)
	}
	for _, peer := range list {
		want := map[string]string{"3": "10.0.0.3:8093", "4": "192.0.2.4:1"}[peer.NodeID]
		permit := cloudkey.PeerPermit{ContentID: content, Reader: "key-1", Server: "key-" + peer.NodeID}
		if err := cloudkey.VerifyPeerToken(key.Public(), peer.Token, permit, now); err != nil || peer.Address != want ||
			peer.Key != "key-"+peer.NodeID {
			t.Errorf("%+v: %v", peer, err)
		}
	}
	if got := idsOf(request(second, "3"), true); !slices.Equal(got, []string{"1"}) {
		t.Errorf("pulling are %v", got)
	}
	if got := idsOf(request(second, "3"), false); !slices.Equal(got, []string{"4"}) {
		t.Errorf("without an excluded one: %v", got)
	}
	now = now.Add(10 * time.Minute)
	if got := idsOf(request(second), true); got != nil {
		t.Errorf("nodes that ended long ago: %v", got)
	}
	refused = "1"
	if _, err := p.For(t.Context(), reader, content, nil); farm.CodeOf(err) != farm.CodeForbidden {
		t.Errorf("without an order: %v", err)
	}
	for id := range strings.SplitSeq("abcdefgh", "") {
		addNode(t, db, id, ":8093", site, content)
	}
	times := map[string]int{}
	for range 20 {
		list := request(second)
		if len(list) != 4 {
			t.Fatalf("%d peers", len(list))
		}
		for _, peer := range list {
			times[peer.NodeID]++
		}
	}
	for id, n := range times { // 80 of 10 nodes, two of which were handed out once before
		if n < 7 || n > 9 {
			t.Errorf("node %s was handed out %d times; all: %v", id, n, times)
			break
		}
	}
}

// TestReports: what one node reports of a peer counts for that node alone, and what two report for all, for some
// minutes. Each report is an event once.
func TestReports(t *testing.T) {
	db := recordtest.Open(t)
	now := time.Unix(1_800_000_000, 0)
	db.Now = func() time.Time { return now }
	key, err := cloudkey.New()
	if err != nil {
		t.Fatal(err)
	}
	var events []farm.Event
	p := peers.New(db, peers.Options{
		Sign: key.SignPeerToken, MayPull: func(context.Context, *farm.Node, string) error { return nil },
		AppendEvents: func(_ context.Context, list ...farm.Event) error {
			events = append(events, list...)
			return errors.New("the log of events is full") // which is no reason to name no peers
		},
	})
	site := []string{"site"}
	var readers []*farm.Node
	for _, id := range []string{"r1", "r2", "r3"} {
		readers = append(readers, addNode(t, db, id, ":8093", site))
	}
	unrelated := addNode(t, db, "s", ":8093", []string{"elsewhere"})
	addNode(t, db, "liar", ":8093", site, content)
	addNode(t, db, "good", ":8093", site, content)
	request := func(node *farm.Node, excluded ...string) []string {
		t.Helper()
		got, err := p.For(t.Context(), node, content, excluded)
		if err != nil {
			t.Fatal(err)
		}
		return idsOf(got.Peers, false)
	}
	both, one := []string{"good", "liar"}, []string{"good"}
	expect := func(about string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", about, got, want)
		}
	}
	for range 3 {
		expect("the node that reports it", request(readers[0], "liar"), one)
	}
	expect("another node", request(readers[1]), both)
	request(unrelated, "liar", "good")
	request(readers[0], "liar", "r1", "unknown")
	expect("another node, after reports that do not count", request(readers[2]), both)
	expect("the second node that reports it", request(readers[1], "liar"), one)
	expect("another node, after two reports", request(readers[2]), one)
	if n, excluded := p.Reported("liar"); n != 2 || !excluded {
		t.Errorf("%d reports, excluded %v", n, excluded)
	}
	var got []string
	for _, e := range events {
		if e.Name != farm.EventPeerExcluded || e.Extra["node_id"] != "liar" || e.Extra["content_id"] != content {
			t.Errorf("event %+v", e)
		}
		got = append(got, fmt.Sprintf("%v %v %v", e.Extra["reader_id"], e.Extra["readers"], e.Extra["excluded"]))
	}
	expect("events", got, []string{"r1 1 false", "r2 2 true"})
	now = now.Add(12 * time.Minute)
	expect("later", request(readers[2]), both)
	if n, excluded := p.Reported("liar"); n != 0 || excluded {
		t.Errorf("later: %d reports, excluded %v", n, excluded)
	}
}

// TestReportsOfOneNode: one node reports a bounded number of peers at a time, and can do so again later.
func TestReportsOfOneNode(t *testing.T) {
	db := recordtest.Open(t)
	now := time.Unix(1_800_000_000, 0)
	db.Now = func() time.Time { return now }
	key, err := cloudkey.New()
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	p := peers.New(db, peers.Options{
		Sign: key.SignPeerToken, MayPull: func(context.Context, *farm.Node, string) error { return nil },
		AppendEvents: func(_ context.Context, list ...farm.Event) error {
			written += len(list)
			return nil
		},
	})
	reader := addNode(t, db, "reader", ":8093", nil)
	var all []string
	for i := range 60 {
		all = append(all, fmt.Sprintf("peer-%d", i))
		addNode(t, db, all[i], ":8093", nil, content)
	}
	for round := 1; round <= 3; round++ {
		for range 5 {
			if _, err := p.For(t.Context(), reader, content, all); err != nil {
				t.Fatal(err)
			}
		}
		if written != 16*round {
			t.Errorf("round %d: %d events", round, written)
		}
		now = now.Add(12 * time.Minute)
	}
}
