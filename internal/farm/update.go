package farm

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// AgentUpdate is the requested change of a node's agent to another version. Like a Node it is replaced
// and never changed in place.
type AgentUpdate struct {
	ID          string    `json:"id"`      // of the present try, or the last one
	Version     string    `json:"version"` // of the package
	SHA256      string    `json:"sha256"`  // of the package
	Force       bool      `json:"force,omitempty"`
	RequestedAt time.Time `json:"asked"`
	TryBegunAt  time.Time `json:"begun,omitzero"` // of the present try; zero: there is none
	Tries       int       `json:"tries,omitempty"`
	RetryAfter  time.Time `json:"after,omitzero"`    // the next try begins then
	LastFailure string    `json:"failure,omitempty"` // why the last try failed
	RolloutID   string    `json:"rollout,omitempty"` // of the rollout that it is part of; "": none
}

// MaxUpdateTries is how often an update is tried before it fails.
const MaxUpdateTries = 5

// updateRetryDelays are the times between the end of a try and the next one.
var updateRetryDelays = [MaxUpdateTries - 1]time.Duration{time.Minute, 5 * time.Minute, 20 * time.Minute, time.Hour}

// IsOpen reports whether the update is not over: a try continues, or another one follows.
func (u *AgentUpdate) IsOpen() bool {
	return u != nil && (!u.TryBegunAt.IsZero() || u.Tries < MaxUpdateTries)
}

// NextTryAt returns when the next try begins; zero: none does by time alone.
func (u *AgentUpdate) NextTryAt() time.Time {
	if u == nil || !u.TryBegunAt.IsZero() || u.Tries >= MaxUpdateTries {
		return time.Time{}
	}
	if u.RetryAfter.IsZero() {
		return u.RequestedAt
	}
	return u.RetryAfter
}

// BeginUpdateTry begins a try of the requested update, under a separate ID, and reports whether the
// state of the node permits it.
func (n *Node) BeginUpdateTry(id string, now time.Time) bool {
	if !n.Update.IsOpen() || !n.ApplyEvent(UpdateBegun, "its agent becomes "+n.Update.Version, now) {
		return false
	}
	u := *n.Update
	u.ID, u.TryBegunAt, u.Tries, u.RetryAfter, u.LastFailure = id, now, u.Tries+1, time.Time{}, ""
	n.Update = &u
	return true
}

// EndUpdateTry ends the current try: failure is "" when the agent has the requested version, else why
// it does not. A node that is no longer Updating keeps its state.
func (n *Node) EndUpdateTry(failure string, now time.Time) {
	reason := ""
	if failure == "" {
		n.Update = nil
	} else {
		u := *n.Update
		u.TryBegunAt, u.LastFailure = time.Time{}, failure
		if u.Tries < MaxUpdateTries {
			u.RetryAfter = now.Add(updateRetryDelays[max(u.Tries-1, 0)])
		}
		n.Update = &u
		reason = "its agent could not become " + u.Version + ": " + failure
	}
	if n.State == NodeUpdating {
		n.ApplyEvent(UpdateDone, reason, now)
	}
}

// IsOlderVersion reports whether one version X.Y.Z-<hash> is older than another. X.Y.Z-dev+<hash>, a build before that
// release, is older than it. Versions that differ in their hash alone, or are not of that form, have no order.
func IsOlderVersion(a, b string) bool {
	x, okA := parseVersion(a)
	y, okB := parseVersion(b)
	return okA && okB && slices.Compare(x[:], y[:]) < 0
}

// parseVersion reads the X.Y.Z that a version begins with. The last number is 0 before the release, else 1.
func parseVersion(version string) (n [4]int, ok bool) {
	head, rest, _ := strings.Cut(version, "-")
	parts := strings.Split(head, ".")
	if len(parts) != len(n)-1 {
		return n, false
	}
	for i, part := range parts {
		v, err := strconv.Atoi(part)
		if err != nil {
			return n, false
		}
		n[i] = v
	}
	if !strings.HasPrefix(rest, "dev") {
		n[len(parts)] = 1
	}
	return n, true
}

// ResumeUpdateTry continues with a try of a node that was away and is back as it was.
func (n *Node) ResumeUpdateTry(now time.Time) bool {
	return n.IsUpdateRunning() && n.ApplyEvent(UpdateBegun, "its agent becomes "+n.Update.Version, now)
}

// IsUpdateRunning reports whether a try of an update is in progress, whatever state the node is in.
func (n *Node) IsUpdateRunning() bool { return n.Update != nil && !n.Update.TryBegunAt.IsZero() }
