package buildnode

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

const (
	barEvery  = 100 * time.Millisecond // on a terminal
	lineEvery = 5 * time.Second        // elsewhere
	rateOver  = 5 * time.Second        // averaging window of the rate
	leastRate = 50 * time.Millisecond  // a rate over a shorter time is not shown
	barWidth  = 30
)

// progressBar shows the progress of a transfer: on a terminal as one line that changes, elsewhere
// as a line every few seconds. Its methods may be called from any goroutine.
type progressBar struct {
	label   string
	w       io.Writer
	columns int // of the terminal; 0: not a terminal
	now     func() time.Time

	mu      sync.Mutex // guards the fields below
	drawnAt time.Time
	done    int64
	total   int64
	samples []progressSample // of the last rateOver, oldest first
}

type progressSample struct {
	at        time.Time
	doneBytes int64
}

func newProgressBar(w io.Writer, label string) *progressBar {
	b := &progressBar{label: label, w: w, columns: cli.Columns(w), now: time.Now}
	b.samples = []progressSample{{at: b.now()}}
	b.drawnAt = b.now()
	return b
}

// update sets the number of done bytes and the total.
func (b *progressBar) update(done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.done, b.total = done, total
	for len(b.samples) > 1 && now.Sub(b.samples[1].at) > rateOver {
		b.samples = b.samples[1:]
	}
	every := lineEvery
	if b.columns > 0 {
		every = barEvery
	}
	if now.Sub(b.drawnAt) < every {
		return
	}
	b.samples = append(b.samples, progressSample{now, done})
	b.drawnAt = now
	b.drawLocked(now)
}

// end leaves the last state on the terminal.
func (b *progressBar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total == 0 {
		return
	}
	b.drawLocked(b.now())
	if b.columns > 0 {
		_, _ = fmt.Fprintln(b.w)
	}
}

func (b *progressBar) drawLocked(now time.Time) {
	text := b.render(now)
	if b.columns == 0 {
		_, _ = fmt.Fprintln(b.w, text)
		return
	}
	line := []rune(text)
	_, _ = fmt.Fprintf(b.w, "\r%-*s", b.columns-1, string(line[:min(len(line), b.columns-1)]))
}

// render is "push debian [=====>    ]  43%  1.2 GiB of 2.8 GiB  120 MiB/s  14s left".
func (b *progressBar) render(now time.Time) string {
	share := 0.0
	if b.total > 0 {
		share = min(1, float64(b.done)/float64(b.total))
	}
	out := b.label
	if b.columns > 0 {
		full := int(share * barWidth)
		out += " [" + strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full) + "]"
	}
	out += fmt.Sprintf(" %3d%%  %s of %s", int(share*100), bytesize.Format(b.done), bytesize.Format(b.total))
	first := b.samples[0]
	passed := now.Sub(first.at).Seconds()
	if passed < leastRate.Seconds() || b.done <= first.doneBytes {
		return out
	}
	rate := float64(b.done-first.doneBytes) / passed
	out += "  " + bytesize.Format(int64(rate)) + "/s"
	if left := b.total - b.done; left > 0 {
		out += "  " + time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second).String() + " left"
	}
	return out
}
