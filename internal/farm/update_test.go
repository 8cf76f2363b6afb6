package farm

import (
	"testing"
	"time"
)

func TestOlderVersions(t *testing.T) {
	for _, tt := range []struct {
		a, b  string
		older bool
	}{
		{"1.2.3-abc", "1.2.4-abc", true},
		{"1.2.4-abc", "1.2.3-abc", false},
		{"1.9.0-x", "1.10.0-x", true},
		{"0.9.9-x", "1.0.0-x", true},
		{"1.2.3-a", "1.2.3-b", false},
		{"1.2.3", "1.2.4", true},
		{"1.2.3-dev+a", "1.2.3-a", true},
		{"1.2.3-a", "1.2.3-dev+a", false},
		{"1.2.3-dev+a.dirty", "1.2.3-dev+b", false},
		{"1.2.3-devel", "1.2.3-dev+b", false},
		{"1.2.3-dev+b", "1.2.3-devel", false},
		{"1.2.2-a", "1.2.3-dev+a", true},
		{"1.2.3-dev", "1.2.3-a", true},
		{"x", "1.2.3-a", false},
		{"1.2-a", "1.2.3-a", false},
		{"", "1.0.0", false},
		{"1.-2.3", "1.2.3", false},
		{"1.x.3", "1.2.3", false},
		{"1.2.3", "x", false},
		{"1.2.3", "", false},
	} {
		if got := IsOlderVersion(tt.a, tt.b); got != tt.older {
			t.Errorf("%q older than %q: %v", tt.a, tt.b, got)
		}
	}
}

// TestUpdateIsTriedAFewTimes: each failure has its reason and is followed by a longer pause, and
// the last one by no further try.
func TestUpdateIsTriedAFewTimes(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	n := &Node{State: NodeActive, Drain: true, Update: &AgentUpdate{Version: "2", RequestedAt: now}}
	last := time.Duration(0)
	for try := 1; try <= MaxUpdateTries; try++ {
		due := n.Update.NextTryAt()
		if pause := due.Sub(now); try > 1 && pause <= last || due.IsZero() {
			t.Fatalf("try %d begins after %s, the one before after %s", try, pause, last)
		} else if try > 1 {
			last = pause
		}
		now = due
		if !n.BeginUpdateTry("id", now) || n.VisibleState() != NodeUpdating || n.AcceptsStarts() ||
			!n.IsUpdateRunning() ||
			n.Update.Tries != try || n.StateReason != "its agent becomes 2" {
			t.Fatalf("try %d: %+v %+v", try, n, n.Update)
		}
		now = now.Add(time.Second)
		n.EndUpdateTry("no room", now)
		if n.State != NodeActive || !n.Drain || n.StateReason != "its agent could not become 2: no room" ||
			!n.StateSince.Equal(now) || n.Update.LastFailure != "no room" {
			t.Fatalf("after try %d: %+v %+v", try, n, n.Update)
		}
	}
	if n.Update.IsOpen() || !n.Update.NextTryAt().IsZero() || n.BeginUpdateTry("id", now.Add(24*time.Hour)) {
		t.Errorf("it is tried for ever: %+v", n.Update)
	}
}

func TestUpdateWaitsForItsNode(t *testing.T) {
	now := time.Now()
	for _, state := range []NodeState{NodeOffline, NodeInactive} {
		n := &Node{State: state, Update: &AgentUpdate{Version: "2", RequestedAt: now}}
		if n.BeginUpdateTry("id", now) || n.Update.Tries != 0 || n.State != state {
			t.Errorf("%s: %+v", state, n)
		}
	}
	n := &Node{State: NodeUnhealthy, Update: &AgentUpdate{Version: "2", RequestedAt: now}}
	n.BeginUpdateTry("id", now)
	n.ApplyEvent(NodeTimedOut, "gone", now)
	if !n.IsUpdateRunning() || n.ResumeUpdateTry(now) {
		t.Errorf("while it is away: %+v", n)
	}
	n.ApplyEvent(NodeContacted, "", now)
	if !n.ResumeUpdateTry(now) || n.State != NodeUpdating || n.Update.Tries != 1 {
		t.Errorf("back again: %+v", n)
	}
	n.EndUpdateTry("", now)
	if n.State != NodeActive || n.Update != nil || n.StateReason != "" {
		t.Errorf("done: %+v", n)
	}
}

// TestUpdateWithoutOne: a node of which no update was asked for has none that is due, and resumes none.
func TestUpdateWithoutOne(t *testing.T) {
	n := &Node{State: NodeActive}
	if n.Update.IsOpen() || !n.Update.NextTryAt().IsZero() || n.IsUpdateRunning() || n.ResumeUpdateTry(time.Now()) ||
		n.State != NodeActive {
		t.Errorf("%+v", n)
	}
	n.Update = &AgentUpdate{Version: "2", RequestedAt: time.Now()}
	if !n.Update.IsOpen() || n.IsUpdateRunning() || n.ResumeUpdateTry(time.Now()) || n.State != NodeActive {
		t.Errorf("one that has not begun: %+v", n)
	}
	n.Update.TryBegunAt, n.Update.Tries = time.Now(), MaxUpdateTries
	if !n.Update.IsOpen() || !n.Update.NextTryAt().IsZero() {
		t.Errorf("the last try, which goes on: %+v", n.Update)
	}
	n.Update.Tries = 1
	if !n.Update.NextTryAt().IsZero() {
		t.Errorf("a try goes on, and another is due: %+v", n.Update)
	}
}
