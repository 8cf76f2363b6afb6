package imagescan

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/cli"
)

// line is a line on a terminal that says how far something is. Elsewhere it shows nothing.
type line struct {
	g       *globals
	columns int

	mu    sync.Mutex // guards what follows
	shown bool
	last  time.Time // when it was shown
}

// showEvery keeps a terminal that is far away from being busy with nothing but this line.
const showEvery = 100 * time.Millisecond

func newLine(g *globals) *line {
	l := &line{g: g, columns: cli.Columns(g.Err)}
	if g.quiet {
		l.columns = 0
	}
	return l
}

// show replaces what the line says.
func (l *line) show(format string, args ...any) {
	if l.columns == 0 || !l.due() {
		return
	}
	text := []rune(cli.Plain(fmt.Sprintf(format, args...)))
	if len(text) > l.columns-1 {
		text = text[:l.columns-1]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = true
	_, _ = fmt.Fprintf(l.g.Err, "\r\x1b[K%s", string(text))
}

func (l *line) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last) < showEvery {
		return false
	}
	l.last = now
	return true
}

// clear takes the line away.
func (l *line) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown {
		_, _ = fmt.Fprint(l.g.Err, "\r\x1b[K")
		l.shown = false
	}
}

// pathsAt completes a path behind a prefix.
func pathsAt(prefix, path string) []string {
	const most = 1000
	found, _ := filepath.Glob(globEscape(path) + "*")
	slices.Sort(found)
	out := make([]string, 0, min(most, len(found)))
	for _, f := range found[:min(most, len(found))] {
		if isFolder(f) {
			f += "/"
		}
		out = append(out, prefix+f)
	}
	return out
}
