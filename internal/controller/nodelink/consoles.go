package nodelink

import (
	"time"

	"github.com/buildyard/buildyard/api"
)

// pendingConsole is a console request that a node has not answered yet.
type pendingConsole struct {
	call api.ConsoleRequest
	sent time.Time // zero: not yet
}

// RequestConsole asks a node to show a console.
func (n *Sessions) RequestConsole(node string, call api.ConsoleRequest) {
	s := n.session(node)
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.consoles == nil {
		s.consoles = map[string]pendingConsole{}
	}
	s.consoles[call.Session] = pendingConsole{call: call}
	s.mu.Unlock()
	s.signal()
}

// DropConsole withdraws the request of a console.
func (n *Sessions) DropConsole(node, session string) {
	s := n.find(node)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.consoles, session)
}

// takeConsoles returns the console requests that are to be sent now, with the time at which the
// next one is due again.
func (s *session) takeConsoles(now time.Time, resend time.Duration) (calls []api.ConsoleRequest, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.consoles {
		if again := d.sent.Add(resend); !d.sent.IsZero() && now.Before(again) {
			next = earlier(next, again)
			continue
		}
		d.sent = now
		s.consoles[id] = d
		calls = append(calls, d.call)
	}
	return calls, next
}
