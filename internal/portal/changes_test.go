package portal

import (
	"testing"
	"time"
)

// TestPace: a page is notified once a second, and less often where refreshing all pages would
// exceed refreshCPUShare of a core.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		pages int
		cost  time.Duration
		want  time.Duration
	}{
		{1, 0, time.Second},
		{20, 4 * time.Millisecond, time.Second},
		{20, 10 * time.Millisecond, 2 * time.Second},
		{1000, 10 * time.Millisecond, 30 * time.Second},
	} {
		h := newHub(func() (<-chan struct{}, func() Topics, func()) { return nil, nil, func() {} })
		for range c.pages {
			defer h.removePage("", h.addPage("", Instances))
		}
		for range 3 {
			h.recordRefresh(c.cost)
		}
		if got := h.notifyPause(); got != c.want {
			t.Errorf("%d pages that take %s each are told every %s, want %s", c.pages, c.cost, got, c.want)
		}
	}
}

// TestPagesOfOne: one login cannot use up the limit of all others.
func TestPagesOfOne(t *testing.T) {
	h := newHub(func() (<-chan struct{}, func() Topics, func()) { return nil, nil, func() {} })
	for range maxOfLogin {
		l := h.addPage("ann", Instances)
		if l == nil {
			t.Fatal("there is no place")
		}
		defer h.removePage("ann", l)
	}
	if h.addPage("ann", Instances) != nil {
		t.Error("there is a place too many")
	}
	if l := h.addPage("bob", Instances); l == nil {
		t.Error("nobody else has a place")
	} else {
		h.removePage("bob", l)
	}
	if len(h.pagesByLogin) != 1 {
		t.Errorf("who has left is counted: %v", h.pagesByLogin)
	}
}
