package outages

import (
	"fmt"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// testCloud has nodes whose last contacts the test sets.
type testCloud struct {
	*Outages
	t       testing.TB
	now     time.Time
	contact map[string]time.Time
	paused  bool
}

func open(t testing.TB) *testCloud {
	c := &testCloud{
		t: t, now: time.Date(2026, 1, 2, 15, 40, 0, 0, time.UTC), contact: map[string]time.Time{},
	}
	db := recordtest.Open(t)
	db.Now = func() time.Time { return c.now }
	c.Outages = New(db, Options{
		NodeTimeout: 2 * time.Minute, InstanceTimeout: 3 * time.Minute,
		LastContact: func(id string) time.Time { return c.contact[id] },
		Paused:      func() bool { return c.paused },
		Since:       func(at time.Time) time.Time { return at },
	})
	return c
}

func (c *testCloud) commit(changes ...store.Change) {
	c.t.Helper()
	recordtest.Commit(c.t, c.db, changes...)
}

// node writes a node; one that is not Active was lost ago.
func (c *testCloud) node(id, host string, state farm.NodeState, reason string, ago time.Duration, groups ...string) {
	c.t.Helper()
	since := c.now.Add(-ago)
	if state == farm.NodeOffline {
		c.contact[id] = since
		since = since.Add(2 * time.Minute)
	}
	c.commit(store.Put(c.db.Tables.Nodes, id, &farm.Node{
		ID: id, Name: "name-" + id, Host: host, State: state, StateReason: reason, StateSince: since, Groups: groups,
	}, store.Any))
}

func (c *testCloud) group(id, name string) {
	c.t.Helper()
	c.commit(store.Put(c.db.Tables.Groups, id, &farm.Group{ID: id, Name: name}, store.Any))
}

func (c *testCloud) instance(id, node string, state farm.InstanceState, lost time.Time) {
	c.t.Helper()
	inst := &farm.Instance{ID: id, NodeID: node, State: state, NodeLostAt: lost}
	c.commit(store.Put(c.db.Tables.Instances, id, inst, store.Any))
}

func all(string) bool { return true }

// TestOutages: nodes are grouped by state, reason and time; what they share is named.
func TestOutages(t *testing.T) {
	c := open(t)
	c.group("g1", "ci")
	c.group("g2", "ios")
	for i := range 12 {
		c.node(fmt.Sprintf("a%02d", i), fmt.Sprintf("10.1.2.%d", i), farm.NodeOffline,
			fmt.Sprintf("no contact for 2m%ds", i), 10*time.Minute-time.Duration(i)*time.Second, "g1", "deleted")
	}
	c.node("b", "10.1.9.9", farm.NodeOffline, "no contact for 2m0s", 24*time.Hour, "g2")
	c.node("c", "mac.local", farm.NodeUnhealthy, "it is full, and none of its 2 VMs runs", time.Minute)
	c.node("d", "mac2.local", farm.NodeUnhealthy, "it is full, and none of its 4 VMs runs", time.Minute)
	for i := range 4 {
		c.node(fmt.Sprintf("up%d", i), "10.1.2.200", farm.NodeActive, "", time.Hour, "g1")
	}
	lost := c.now.Add(-8 * time.Minute)
	c.instance("i1", "a00", farm.Started, lost)
	c.instance("i2", "a01", farm.Errored, lost)
	c.instance("i3", "a02", farm.Terminated, lost)
	c.instance("i4", "c", farm.Started, time.Time{})
	c.instance("i5", "up1", farm.Started, time.Time{})

	list := c.Current(all)
	if len(list) != 3 {
		t.Fatalf("%d outages: %+v", len(list), list)
	}
	one := list[0]
	if one.State != "Offline" || one.Reason != "no contact" || one.Nodes != 12 || one.Of != 19 ||
		!one.FirstContactLost.Equal(c.now.Add(-10*time.Minute)) ||
		!one.LastContactLost.Equal(c.now.Add(-10*time.Minute+11*time.Second)) ||
		one.AddressPrefix != "10.1.2.0/24" || len(one.NodeIDs) != maxNodeIDs || one.NodeIDs[0] != "a00" {
		t.Errorf("first outage: %+v", one)
	}
	if len(one.Groups) != 1 || one.Groups[0] != (api.OutageGroup{ID: "g1", Name: "ci", Nodes: 12, Of: 16}) {
		t.Errorf("groups: %+v", one.Groups)
	}
	if one.Instances != 2 || one.InstancesAtRisk != 1 || !one.ErrorAt.Equal(lost.Add(3*time.Minute)) {
		t.Errorf("instances: %+v", one)
	}
	if got := Describe(one); got != "12 nodes Offline (no contact), all of group ci, addresses in 10.1.2.0/24" {
		t.Errorf("described as %q", got)
	}
	two := list[1]
	if two.State != "Unhealthy" || two.Nodes != 2 || two.Instances != 1 || !two.ErrorAt.IsZero() ||
		two.AddressPrefix != "" || two.Groups != nil {
		t.Errorf("second outage: %+v", two)
	}
	if got := Describe(list[2]); got != "1 node Offline (no contact)" {
		t.Errorf("described as %q", got)
	}

	list = c.Current(func(id string) bool { return id == "a00" || id == "up0" })
	if len(list) != 1 || list[0].Nodes != 1 || list[0].Of != 2 || list[0].Groups[0].Of != 2 ||
		list[0].AddressPrefix != "" {
		t.Errorf("of a limited caller: %+v", list)
	}

	c.paused = true
	c.now = c.now.Add(maxAge)
	if one := c.Current(all)[0]; !one.ErrorAt.IsZero() || one.InstancesAtRisk != 1 {
		t.Errorf("in maintenance: %+v", one)
	}
}

// TestNewNode: a node that has just joined is Offline until its first contact, which is not an outage.
func TestNewNode(t *testing.T) {
	c := open(t)
	node := &farm.Node{ID: "a", State: farm.NodeOffline, StateSince: c.now, Joined: c.now}
	c.commit(store.Put(c.db.Tables.Nodes, "a", node, store.Any))
	if list := c.Current(all); list != nil {
		t.Errorf("outages: %+v", list)
	}
}

// TestOutageAlarm: the alarm is active when all nodes are lost, or many of them.
func TestOutageAlarm(t *testing.T) {
	for _, test := range []struct {
		lost, active int
		want         bool
	}{
		{0, 3, false},
		{1, 0, true},
		{2, 1, false},
		{3, 12, true},
		{3, 13, false},
		{200, 800, true},
	} {
		c := open(t)
		for i := range test.lost {
			c.node(fmt.Sprintf("a%03d", i), "10.0.0.1", farm.NodeOffline, "no contact for 2m0s", time.Hour)
		}
		for i := range test.active {
			c.node(fmt.Sprintf("b%03d", i), "10.0.0.1", farm.NodeActive, "", time.Hour)
		}
		list := c.Alarms()
		if got := len(list) == 1; got != test.want {
			t.Errorf("%d lost, %d active: %+v", test.lost, test.active, list)
		}
		if test.want && (list[0].Count != test.lost || !list[0].Since.Equal(c.now.Add(-time.Hour))) {
			t.Errorf("alarm: %+v", list[0])
		}
		if test.want && list[0].Urgent != (test.lost >= test.active) {
			t.Errorf("%d lost, %d active: urgent is %v", test.lost, test.active, list[0].Urgent)
		}
	}
}

// TestCommonPrefix: the prefix is one that networks commonly have.
func TestCommonPrefix(t *testing.T) {
	for _, test := range []struct {
		hosts []string
		want  string
	}{
		{[]string{"10.1.2.3"}, ""},
		{[]string{"10.1.2.3", "10.1.2.4"}, "10.1.2.0/24"},
		{[]string{"10.1.2.3", "10.1.3.4"}, "10.1.0.0/16"},
		{[]string{"10.1.2.3", "10.2.3.4"}, ""},
		{[]string{"10.1.2.3", "mac.local"}, ""},
		{[]string{"mac.local", "10.1.2.3"}, ""},
		{[]string{"2001:db8:0:1::1", "2001:db8:0:1::2"}, "2001:db8:0:1::/64"},
		{[]string{"2001:db8:0:1::1", "2001:db8:0:2::2"}, "2001:db8::/48"},
		{[]string{"10.1.2.3", "2001:db8::1"}, ""},
	} {
		var lost []lostNode
		for _, host := range test.hosts {
			lost = append(lost, lostNode{node: &farm.Node{Host: host}})
		}
		if got := commonPrefix(lost); got != test.want {
			t.Errorf("%v: %q, want %q", test.hosts, got, test.want)
		}
	}
}

// BenchmarkOutages measures a status at 1,000 lost nodes with 20,000 instances, without cached facts.
func BenchmarkOutages(b *testing.B) {
	c := open(b)
	c.group("g", "ci")
	for i := range 1000 {
		id := fmt.Sprintf("n%04d", i)
		c.node(id, "10.1.2.3", farm.NodeOffline, "no contact for 2m0s", time.Hour, "g")
		for k := range 20 {
			c.instance(fmt.Sprintf("%s-%d", id, k), id, farm.Started, c.now)
		}
	}
	for b.Loop() {
		c.now = c.now.Add(maxAge)
		c.Current(all)
	}
}
