package fault

import (
	"testing"
	"time"
)

// TestStaleness: an answer that was right a moment ago is right, an older one is not, and what a call
// changes has no age.
func TestStaleness(t *testing.T) {
	const age = 5 * time.Second
	made := call{Op: opCreate, Begin: 0, End: time.Second, ExternalID: "x", Instances: []string{"a"}, Acked: true}
	ended := call{Op: opTerminate, Begin: 2 * time.Second, End: 3 * time.Second, Instances: []string{"a"}, Acked: true}
	for at, lost := range map[time.Duration]int{4 * time.Second: 0, 7 * time.Second: 0, 9 * time.Second: 1} {
		seen := call{Op: opLook, Begin: at, End: at + 1, Instances: []string{"a"}, State: "Started", Acked: true}
		calls := []call{made, ended, seen}
		var f, strict findings
		checkCalls(withStaleness(calls, age), nil, rules{}, &f)
		checkCalls(withStaleness(calls, 0), nil, rules{}, &strict)
		if f.Lost != lost || strict.Lost != 1 {
			t.Errorf("at %s: lost %d, want %d; without staleness %d", at, f.Lost, lost, strict.Lost)
		}
		if calls[2].Begin != at {
			t.Error("the history was changed")
		}
	}
}
