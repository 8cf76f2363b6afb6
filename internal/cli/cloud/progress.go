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

	mu    sync.Mutex // guards the fields below
	parts map[string]part
	sum   float64 // of all shares
	whole int     // parts that are done
	drawn string  // on the terminal
}

// part is the progress of one item.
type part struct {
	state string
	share float64 // 0..1
}

func newProgressMeter(w io.Writer) *progressMeter {
	return &progressMeter{w: w, columns: cli.Columns(w), parts: map[string]part{}}
}

// expect sets the expected items.
func (m *progressMeter) expect(ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		m.parts[id] = part{}
	}
}

// update sets the progress of one item.
func (m *progressMeter) update(id, state string, share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.parts[id]
	now := part{state, min(max(share, 0), 1)}
	m.parts[id] = now
	m.sum += now.share - before.share
	m.whole += int(now.share) - int(before.share)
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

// drawLocked draws "[=====>    ]  43%  1 of 3  Pulling" over the previous state.
func (m *progressMeter) drawLocked(state string) {
	share := min(max(m.sum/float64(len(m.parts)), 0), 1)
	if m.whole == len(m.parts) {
		share = 1 // sums of fractions are not exact
	}
	full := int(share * barWidth)
	text := fmt.Sprintf("[%s%s] %3d%%  ", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), int(100*share))
	if len(m.parts) > 1 {
		text += fmt.Sprintf("%d of %d  ", m.whole, len(m.parts))
	}
	line := []rune(text + cli.Plain(state))
	if text = string(line[:min(len(line), m.columns-1)]); text == m.drawn {
		return
	}
	m.drawn = text
	_, _ = fmt.Fprintf(m.w, "\r%-*s", m.columns-1, text)
}

// end leaves the last state on the terminal.
func (m *progressMeter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drawn != "" {
		_, _ = fmt.Fprintln(m.w)
		m.drawn = ""
	}
}
