package farm

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Update is the requested change of a node's agent to another version. Like a Node it is replaced
// and never changed in place.
type Update struct {
	ID      string    `json:"id"`      // of the present try, or the last one
	Version string    `json:"version"` // of the package
	SHA256  string    `json:"sha256"`  // of the package
	Force   bool      `json:"force,omitempty"`
	Asked   time.Time `json:"asked"`
	Begun   time.Time `json:"begun,omitzero"` // of the present try; zero: there is none
	Tries   int       `json:"tries,omitempty"`
	After   time.Time `json:"after,omitzero"`    // the next try begins then
	Failure string    `json:"failure,omitempty"` // why the last try failed
}

// UpdateTries is how often an update is tried before it fails.
const UpdateTries = 5

// updatePauses are the times between the end of a try and the next one.
var updatePauses = [UpdateTries - 1]time.Duration{time.Minute, 5 * time.Minute, 20 * time.Minute, time.Hour}

// Open reports whether the update is not over: a try continues, or another one follows.
func (u *Update) Open() bool { return u != nil && (!u.Begun.IsZero() || u.Tries < UpdateTries) }

// DueAt returns when the next try begins; zero: none does by time alone.
func (u *Update) DueAt() time.Time {
	if u == nil || !u.Begun.IsZero() || u.Tries >= UpdateTries {
		return time.Time{}
	}
	if u.After.IsZero() {
		return u.Asked
	}
	return u.After
}

// BeginUpdate begins a try of the requested update, under a separate ID, and reports whether the
// state of the node permits it.
func (n *Node) BeginUpdate(id string, now time.Time) bool {
	if !n.Update.Open() || !n.Enter(UpdateBegun, "its agent becomes "+n.Update.Version, now) {
		return false
	}
	u := *n.Update
	u.ID, u.Begun, u.Tries, u.After, u.Failure = id, now, u.Tries+1, time.Time{}, ""
	n.Update = &u
	return true
}

// EndUpdate ends the current try: failure is "" when the agent has the requested version, else why
// it does not. A node that is no longer Updating keeps its state.
func (n *Node) EndUpdate(failure string, now time.Time) {
	reason := ""
	if failure == "" {
		n.Update = nil
	} else {
		u := *n.Update
		u.Begun, u.Failure = time.Time{}, failure
		if u.Tries < UpdateTries {
			u.After = now.Add(updatePauses[max(u.Tries-1, 0)])
		}
		n.Update = &u
		reason = "its agent could not become " + u.Version + ": " + failure
	}
	if n.State == NodeUpdating {
		n.Enter(UpdateDone, reason, now)
	}
}

// OlderVersion reports whether one version X.Y.Z-<hash> is older than another. Those that
// differ in their hash alone, or are not of that form, have no order.
func OlderVersion(a, b string) bool {
	x, okA := numbers(a)
	y, okB := numbers(b)
	return okA && okB && slices.Compare(x[:], y[:]) < 0
}

// numbers reads the X.Y.Z that a version begins with.
func numbers(version string) (n [3]int, ok bool) {
	head, _, _ := strings.Cut(version, "-")
	parts := strings.Split(head, ".")
	if len(parts) != len(n) {
		return n, false
	}
	for i, part := range parts {
		v, err := strconv.Atoi(part)
		if err != nil {
			return n, false
		}
		n[i] = v
	}
	return n, true
}

// ResumeUpdate continues with a try of a node that was away and is back as it was.
func (n *Node) ResumeUpdate(now time.Time) bool {
	return n.Updating() && n.Enter(UpdateBegun, "its agent becomes "+n.Update.Version, now)
}

// Updating reports whether a try of an update is in progress, whatever state the node is in.
func (n *Node) Updating() bool { return n.Update != nil && !n.Update.Begun.IsZero() }
