package cloud

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/internal/cli"
)

const barWidth = 30

// progressMeter shows the progress of several items: on a terminal as one line that changes,
// elsewhere as a line for each change of a state or 25 % of progress. It may be called from any
// goroutine.
type progressMeter struct {
	w       io.Writer
	columns int // of the terminal; 0: not a terminal

	mu        sync.Mutex // guards the fields below
	items     map[string]itemProgress
	shareSum  float64 // of all shares
	doneItems int     // parts that are done
	drawnText string  // on the terminal
}

// itemProgress is the progress of one item.
type itemProgress struct {
	state string
	share float64 // 0..1
}

func newProgressMeter(w io.Writer) *progressMeter {
	return &progressMeter{w: w, columns: cli.Columns(w), items: map[string]itemProgress{}}
}

// expectItems sets the expected items.
func (m *progressMeter) expectItems(ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.items[id] = itemProgress{}
	}
}

// updateItem sets the progress of one item.
func (m *progressMeter) updateItem(id, state string, share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.items[id]
	now := itemProgress{state, min(max(share, 0), 1)}
	m.items[id] = now
	m.shareSum += now.share - before.share
	m.doneItems += int(now.share) - int(before.share)
	if m.columns > 0 {
		m.drawLocked(state)
		return
	}
	if now.state != before.state || int(4*now.share) > int(4*before.share) {
		text := id + "  " + state
		if share > 0 && share < 1 {
			text += fmt.Sprintf("  %d%%", int(100*now.share))
		}
		_, _ = fmt.Fprintln(m.w, cli.EscapeName(text))
	}
}

// drawLocked draws "[=====>    ]  43%  1 of 3  Pulling" over the previous state.
func (m *progressMeter) drawLocked(state string) {
	share := min(max(m.shareSum/float64(len(m.items)), 0), 1)
	if m.doneItems == len(m.items) {
		share = 1 // sums of fractions are not exact
	}
	full := int(share * barWidth)
	text := fmt.Sprintf("[%s%s] %3d%%  ", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), int(100*share))
	if len(m.items) > 1 {
		text += fmt.Sprintf("%d of %d  ", m.doneItems, len(m.items))
	}
	line := []rune(text + cli.EscapeName(state))
	if text = string(line[:min(len(line), m.columns-1)]); text == m.drawnText {
		return
	}
	m.drawnText = text
	_, _ = fmt.Fprintf(m.w, "\r%-*s", m.columns-1, text)
}

// end leaves the last state on the terminal.
func (m *progressMeter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drawnText != "" {
		_, _ = fmt.Fprintln(m.w)
		m.drawnText = ""
	}
}
