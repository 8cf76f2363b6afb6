package record

import (
	"time"

	"github.com/buildyard/buildyard/api"
)

// Maintenance is an operator's instruction that nothing is removed or terminated automatically for
// a while. Requests of clients are still carried out.
type Maintenance struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // ends automatically then; zero: only by request
	Ended  time.Time `json:"ended,omitzero"` // by hand
	Reason string    `json:"reason,omitempty"`
}

// End returns when a maintenance ends or has ended; zero for one without end.
func (m Maintenance) End() time.Time {
	if !m.Ended.IsZero() {
		return m.Ended
	}
	return m.Until
}

// On reports whether it is active. The zero value is not.
func (m Maintenance) On(now time.Time) bool {
	end := m.End()
	return !m.Since.IsZero() && (end.IsZero() || now.Before(end))
}

// Shown returns an active maintenance in its form for clients.
func (m Maintenance) Shown() *api.Maintenance {
	return &api.Maintenance{On: true, Since: m.Since, Until: m.Until, Reason: m.Reason}
}
