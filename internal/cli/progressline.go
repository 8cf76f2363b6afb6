package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// ProgressLine is a line on a terminal that shows the progress of an operation. Elsewhere it shows
// nothing. It may be used by several goroutines.
type ProgressLine struct {
	w       io.Writer
	columns int

	mu      sync.Mutex // guards the fields below
	visible bool
	shownAt time.Time // when it was shown
}

// showEvery is the minimum interval between updates, for slow remote terminals.
const showEvery = 100 * time.Millisecond

// NewProgressLine returns a line on a stream; nil is none.
func NewProgressLine(to io.Writer) *ProgressLine { return &ProgressLine{w: to, columns: Columns(to)} }

// Show replaces the content of the line.
func (l *ProgressLine) Show(format string, args ...any) {
	if l.columns == 0 || !l.isDue() {
		return
	}
	text := []rune(EscapeName(fmt.Sprintf(format, args...)))
	if len(text) > l.columns-1 {
		text = text[:l.columns-1]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.visible = true
	_, _ = fmt.Fprintf(l.w, "\r\x1b[K%s", string(text))
}

func (l *ProgressLine) isDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.shownAt) < showEvery {
		return false
	}
	l.shownAt = now
	return true
}

// Clear erases the line.
func (l *ProgressLine) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.visible {
		_, _ = fmt.Fprint(l.w, "\r\x1b[K")
		l.visible = false
	}
}
