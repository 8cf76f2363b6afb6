//go:build race

package lockorder

import (
	"strings"
	"sync"
	"testing"
)

// TestOrderIsChecked takes locks in the right order, in the wrong one, and one of a place twice.
func TestOrderIsChecked(t *testing.T) {
	var first, again Mutex[Placer]
	var second Mutex[NodeSession]
	for range 2 {
		first.Lock()
		second.Lock()
		first.Unlock()
		second.Unlock()
	}
	fails := func(name, want string, do func()) {
		t.Helper()
		defer func() {
			if text, _ := recover().(string); !strings.Contains(text, want) {
				t.Errorf("%s: %q, want %q", name, text, want)
			}
		}()
		do()
	}
	second.Lock()
	fails("wrong order", "lockorder.Placer is taken while lockorder.NodeSession is held", first.Lock)
	second.Unlock()
	first.Lock()
	fails("the same place", "lockorder.Placer is taken while lockorder.Placer is held", again.Lock)
	var other sync.WaitGroup
	other.Go(func() { again.Lock(); again.Unlock() }) //nolint:staticcheck // another goroutine may
	other.Wait()
	first.Unlock()
	if len(held.by) != 0 {
		t.Errorf("held: %v", held.by)
	}
}
