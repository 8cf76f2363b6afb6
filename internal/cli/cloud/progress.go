package cloud

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/internal/cli"
)

const barWidth = 30

// meter shows how far several things are: on a terminal as one line that changes,
// elsewhere as a line whenever the state of one changes or a quarter more is done. It
// may be called from any goroutine.
type meter struct {
	w       io.Writer
	columns int // of the terminal; 0: it is none

	mu    sync.Mutex // guards the fields below
	parts map[string]part
	drawn bool
}

// part is how far one thing is.
type part struct {
	state string
	share float64 // 0..1
}

func newMeter(w io.Writer, ids ...string) *meter {
	m := &meter{w: w, columns: cli.Columns(w), parts: map[string]part{}}
	for _, id := range ids {
		m.parts[id] = part{}
	}
	return m
}

// update says how far one thing is.
func (m *meter) update(id, state string, share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.parts[id]
	now := part{state, min(max(share, 0), 1)}
	m.parts[id] = now
	if m.columns > 0 {
		m.drawLocked(state)
		return
	}
	if now.state != before.state || int(4*now.share) > int(4*before.share) {
		text := id + "  " + state
		if share > 0 && share < 1 {
			text += fmt.Sprintf("  %d%%", int(100*now.share))
		}
		_, _ = fmt.Fprintln(m.w, cli.Plain(text))
	}
}

// drawLocked draws "[=====>    ]  43%  Pulling" over what was there.
func (m *meter) drawLocked(state string) {
	sum := 0.0
	for _, p := range m.parts {
		sum += p.share
	}
	share := sum / float64(len(m.parts))
	full := int(share * barWidth)
	text := fmt.Sprintf("[%s%s] %3d%%  %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), int(100*share), cli.Plain(state))
	if room := m.columns - 1; len(text) > room {
		text = text[:room]
	}
	_, _ = fmt.Fprintf(m.w, "\r%-*s", m.columns-1, text)
	m.drawn = true
}

// end leaves the last state on the screen.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drawn {
		_, _ = fmt.Fprintln(m.w)
	}
}
