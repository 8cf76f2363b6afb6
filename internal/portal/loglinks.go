package portal

import (
	"sync"
	"time"

	"github.com/buildyard/buildyard/client"
)

const (
	logLinkTime = 10 * time.Second // for which it is remembered whether there are rows
	maxLogLinks = 1000             // that are remembered
)

// logLinks remembers about what the logs of the nodes have rows, since pages refresh every second and a search of
// the logs reads megabytes.
type logLinks struct {
	mu    sync.Mutex
	found map[logLink]logLinkFound
}

// logLink is a search of the logs of the nodes, by what the login may see.
type logLink struct{ login, filter string }

type logLinkFound struct {
	hasRows bool
	at      time.Time
}

// hasRows reports whether the page of the logs of the nodes has a row that matches a filter.
func (l *logLinks) hasRows(v *visit, login, filter string) bool {
	key := logLink{login, filter}
	l.mu.Lock()
	known, ok := l.found[key]
	l.mu.Unlock()
	if ok && v.now.Sub(known.at) < logLinkTime {
		return known.hasRows
	}
	q := logQuery{service: nodeService, text: filter}
	q.readFilter()
	answer, err := v.Logs().Entries(v, client.LogQuery{LogFilter: q.LogFilter, Service: nodeService, Limit: 1})
	has := err == nil && len(answer.Entries) > 0
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found == nil || len(l.found) >= maxLogLinks {
		l.found = map[logLink]logLinkFound{}
	}
	l.found[key] = logLinkFound{has, v.now}
	return has
}
