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
	to      io.Writer
	columns int

	mu    sync.Mutex // guards what follows
	shown bool
	last  time.Time // when it was shown
}

// showEvery is the minimum interval between updates, for slow remote terminals.
const showEvery = 100 * time.Millisecond

// NewLine returns a line on a stream; nil is none.
func NewLine(to io.Writer) *ProgressLine { return &ProgressLine{to: to, columns: Columns(to)} }

// Show replaces the content of the line.
func (l *ProgressLine) Show(format string, args ...any) {
	if l.columns == 0 || !l.due() {
		return
	}
	text := []rune(Plain(fmt.Sprintf(format, args...)))
	if len(text) > l.columns-1 {
		text = text[:l.columns-1]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = true
	_, _ = fmt.Fprintf(l.to, "\r\x1b[K%s", string(text))
}

func (l *ProgressLine) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last) < showEvery {
		return false
	}
	l.last = now
	return true
}

// Clear erases the line.
func (l *ProgressLine) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown {
		_, _ = fmt.Fprint(l.to, "\r\x1b[K")
		l.shown = false
	}
}
