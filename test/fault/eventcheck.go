package fault

import (
	"encoding/json"
	"maps"
	"slices"
)

// toldEvent is an event as it was delivered.
type toldEvent struct {
	Name     string `json:"name"`
	Instance string `json:"instance_id"`
}

// readTold parses an event; the result has no name if the line is not one.
func readTold(line string) (t toldEvent) {
	if json.Unmarshal([]byte(line), &t) != nil {
		return toldEvent{}
	}
	return t
}

// The checked events of an instance, in the order in which they come. An instance that is
// terminated before it runs has no vmStarted.
const (
	startVM      = "StartVM"
	vmStarted    = "VMStarted"
	terminateVM  = "TerminateVM"
	vmTerminated = "VMTerminated"
)

// follows are pairs of events of an instance in their required order.
var follows = []struct{ first, then string }{
	{startVM, vmStarted},
	{startVM, terminateVM},
	{startVM, vmTerminated},
	{vmStarted, vmTerminated},
	{terminateVM, vmTerminated},
}

// checkInstanceEvents compares the events at one destination with what was acknowledged of instances that
// have all ended: everything came at least once, and first in order.
func checkInstanceEvents(where string, lives map[string]*life, events []toldEvent, f *findings) {
	at := map[string]map[string]int{} // instance -> event -> where it came first
	for i, e := range events {
		switch {
		case e.Name == "":
			f.wrong("%s: event %d is not an event", where, i)
		case e.Instance == "":
		case at[e.Instance] == nil:
			at[e.Instance] = map[string]int{e.Name: i}
		default:
			if _, again := at[e.Instance][e.Name]; !again {
				at[e.Instance][e.Name] = i
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(lives)) {
		l := lives[id]
		for _, want := range []struct {
			event string
			is    bool
		}{
			{startVM, l.created != never},
			{vmStarted, l.started != never},
			{terminateVM, l.agreed != never},
			{vmTerminated, l.created != never || l.agreed != never},
		} {
			if _, is := at[id][want.event]; want.is && !is {
				f.lost("%s: instance %s has no %s", where, id, want.event)
			}
		}
		for _, order := range follows {
			first, has := at[id][order.first]
			then, comes := at[id][order.then]
			if has && comes && then < first {
				f.wrong("%s: instance %s has %s before %s", where, id, order.then, order.first)
			}
		}
	}
}
