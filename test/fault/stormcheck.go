package fault

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// span is a time during which the controller was up: from its first word that it is
// ready to the moment before a signal.
type span struct{ from, to time.Duration }

// instanceTrace is what was seen of one instance, in the order in which it was seen.
type instanceTrace struct {
	node     string             // where it was placed; "": never seen placed
	state    farm.InstanceState // of the last look whose order is known
	by       time.Duration      // when that look had ended
	stream   int                // the last stream that reported it
	told     farm.InstanceState // what that stream reported last
	from, to time.Duration      // it surely held its slot from then to then
	started  time.Duration      // when it was first seen Started; never when it was not
	silent   bool               // something was wrong with it already
}

// stormChecker reads a long history once, call by call.
type stormChecker struct {
	lives  map[string]*life
	rules  rules
	slots  int    // of each node
	up     []span // in their order
	trails map[string]*instanceTrace
	sum    stormSum
	took   []time.Duration // of the creates that were acknowledged while the controller was up
	seen   int             // looks, entries of lists and events
}

// stormSum is how the load of a storm went.
type stormSum struct {
	Offered  int           `json:"offered"`           // creates
	PerS     float64       `json:"offered_per_s"`     // over the whole storm
	WhileUp  int           `json:"offered_while_up"`  // of them, while the controller was up and stayed so for a moment
	Served   int           `json:"served_while_up"`   // and acknowledged
	Up       time.Duration `json:"up_ns"`             // how long it was up
	P50      time.Duration `json:"create_p50_ns"`     // of those that were served
	P99      time.Duration `json:"create_p99_ns"`     //
	Longest  time.Duration `json:"longest_wait_ns"`   // from the acknowledgement of a create to Started
	Seen     int           `json:"seen"`              // states that were seen of instances
	Streams  int           `json:"streams"`           // watches that reported everything
	Fullest  int           `json:"most_on_a_node"`    // instances that surely had a slot of one node at a time
	Slots    int           `json:"slots_of_a_node"`   //
	Restarts int           `json:"orderly_restarts"`  // in addition to the kills
	Begin    time.Duration `json:"-"`                 // of the first create
	End      time.Duration `json:"-"`                 // of the last create
	Need     float64       `json:"needed_per_s"`      // offered
	Share    float64       `json:"served_of_offered"` // while it was up
}

func newStormChecker(book *ledger, r rules, slots int, up []span) *stormChecker {
	return &stormChecker{
		lives: book.lives, rules: r, slots: slots, up: up, trails: map[string]*instanceTrace{},
		sum: stormSum{Begin: never, Slots: slots},
	}
}

// check reads the whole history and returns the figures of the load.
func (j *stormChecker) check(calls iter.Seq[call], f *findings) stormSum {
	for c := range calls {
		checkCall(j.lives, c, j.rules, f)
		switch {
		case c.Op == opCreate:
			j.offered(c)
		case c.Acked && (c.Op == opLook || c.Op == opList || c.Op == opWatch):
			for _, id := range c.Instances {
				j.seen++
				j.see(id, c, f)
			}
		}
	}
	j.crowds(f)
	return j.count()
}

// cutShare is the last part of a time in which the controller was up: what was asked
// for in it may have been cut off by the end of the controller, and is not counted.
const cutShare = 250 * time.Millisecond

// offered counts a create.
func (j *stormChecker) offered(c call) {
	s := &j.sum
	s.Offered++
	s.Begin, s.End = min(s.Begin, c.Begin), max(s.End, c.Begin)
	at, _ := slices.BinarySearchFunc(j.up, c.Begin, func(u span, t time.Duration) int { return cmp.Compare(u.to, t) })
	if at == len(j.up) || c.Begin < j.up[at].from || j.up[at].to-c.Begin < cutShare {
		return
	}
	s.WhileUp++
	if c.Acked {
		s.Served++
		j.took = append(j.took, c.End-c.Begin)
	}
}

// stateOf is the state of the farm that a look saw.
func stateOf(c call) farm.InstanceState {
	if c.State == notFound {
		return farm.InstanceRemoved
	}
	return farm.InstanceState(c.State)
}

// see holds what was seen of an instance against what was seen of it before.
func (j *stormChecker) see(id string, c call, f *findings) {
	t := j.trails[id]
	if t == nil {
		t = &instanceTrace{state: farm.Scheduling, from: never, started: never}
		j.trails[id] = t
	}
	state := stateOf(c)
	if why := t.wrong(c, state); why != "" && !t.silent {
		t.silent = true
		f.wrong("instance %s: %s (%s at %s)", id, why, c.Op, c.End.Round(time.Millisecond))
	}
	if c.Op == opWatch {
		t.stream, t.told = c.Stream, state
	}
	if t.by <= c.Begin {
		t.state, t.by = state, c.End
	}
	if c.Node != "" && state != farm.Terminated {
		t.node = c.Node
		t.from, t.to = min(t.from, c.End), max(t.to, c.Begin)
	}
	if state == farm.Started && t.started == never {
		t.started = c.End
		if l := j.lives[id]; l != nil && l.created != never {
			j.sum.Longest = max(j.sum.Longest, c.End-l.created)
		}
	}
}

// wrong returns what cannot be true of an instance together with what was seen before.
func (t *instanceTrace) wrong(c call, state farm.InstanceState) string {
	switch {
	case c.Node != "" && t.node != "" && c.Node != t.node:
		return fmt.Sprintf("was on node %s and is on %s", t.node, c.Node)
	case c.Op == opWatch && t.stream == c.Stream && !reaches[t.told][state]:
		return fmt.Sprintf("was %q and is %q in one stream", t.told, state)
	case t.by <= c.Begin && !reaches[t.state][state]:
		return fmt.Sprintf("was %q and is %q", t.state, state)
	default:
		return ""
	}
}

// reaches maps a state to the states that can follow it, directly or through others: polls miss
// some.
var reaches = reachable()

func reachable() map[farm.InstanceState]map[farm.InstanceState]bool {
	all := map[farm.InstanceState]map[farm.InstanceState]bool{farm.InstanceRemoved: {farm.InstanceRemoved: true}}
	for _, from := range farm.InstanceStates {
		// A save ends an instance and a termination any: both are found missing in time.
		found, next := map[farm.InstanceState]bool{from: true}, []farm.InstanceState{from}
		for len(next) > 0 {
			at := next[0]
			next = next[1:]
			for _, e := range farm.InstanceEvents {
				if to, ok := farm.NextInstanceState(at, e); ok && !found[to] {
					found[to] = true
					next = append(next, to)
				}
			}
		}
		all[from] = found
	}
	return all
}

// crowds looks for nodes that had more instances at a time than slots. An instance surely used its
// slot between the end of the first look that showed it placed and the beginning of the last one.
func (j *stormChecker) crowds(f *findings) {
	type edge struct {
		at    time.Duration
		delta int
	}
	edges := map[string][]edge{}
	for _, t := range j.trails {
		if t.node != "" && t.from < t.to {
			edges[t.node] = append(edges[t.node], edge{t.from, 1}, edge{t.to, -1})
		}
	}
	for _, node := range slices.Sorted(maps.Keys(edges)) {
		// Of two at the same time the end comes first.
		slices.SortFunc(edges[node],
			func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta)) })
		held, most, when := 0, 0, time.Duration(0)
		for _, e := range edges[node] {
			if held += e.delta; held > most {
				most, when = held, e.at
			}
		}
		if most > j.slots {
			f.wrong("node %s had %d instances and has %d slots (at %s)", node, most, j.slots,
				when.Round(time.Millisecond))
		}
		j.sum.Fullest = max(j.sum.Fullest, most)
	}
}

// count completes the sum.
func (j *stormChecker) count() stormSum {
	s := j.sum
	s.Seen = j.seen
	for _, u := range j.up {
		s.Up += u.to - u.from
	}
	if s.End > s.Begin {
		s.PerS = float64(s.Offered-1) / (s.End - s.Begin).Seconds()
	}
	if s.WhileUp > 0 {
		s.Share = float64(s.Served) / float64(s.WhileUp)
	}
	if n := len(j.took); n > 0 {
		slices.Sort(j.took)
		s.P50, s.P99 = j.took[n/2], j.took[n*99/100]
	}
	return s
}

// String is one line of the report.
func (s *stormSum) String() string {
	ms := func(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
	return fmt.Sprintf("offered %d creates, %.0f/s; up for %s, %d of %d (%.1f %%) acknowledged, p50 %s, p99 %s; "+
		"longest wait for Started %s; %d states seen, %d streams; at most %d of %d slots of a node; %d orderly "+
		"restarts",
		s.Offered, s.PerS, s.Up.Round(time.Second), s.Served, s.WhileUp, 100*s.Share, ms(s.P50), ms(s.P99),
		ms(s.Longest), s.Seen, s.Streams, s.Fullest, s.Slots, s.Restarts)
}
