package main

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// exchange is one call and its answer.
type exchange struct {
	who     string // case, or the program that called
	route   *route // nil: no route of the file
	asked   asked
	answer  *answer
	rule    bool   // refused by a rule that the file has in words only
	refuses string // what of the request is refused, when the message does not name it
	wire    bool   // between our own programs
	unread  bool   // its body cannot be read, or its method is wrong: it asks for nothing
}

// coverage is what a run has seen.
type coverage struct {
	kinds  jsonTypes
	record *recorder // nil: nothing is recorded

	mu    sync.Mutex // guards the fields below
	calls int
	met   map[string]*marks // route, and "route parameter" -> what has met it
	rows  map[string]*marks // row -> likewise
}

// marks counts how often something was covered by a call that succeeded and by one that was
// refused.
type marks struct{ good, bad int }

func (m *marks) whole() bool { return m != nil && m.good > 0 && m.bad > 0 }

func newLedger() *coverage { return &coverage{met: map[string]*marks{}, rows: map[string]*marks{}} }

// take checks an exchange, counts what it covered, and describes what is wrong with it.
func (l *coverage) take(x exchange) []string {
	l.mu.Lock()
	l.calls++
	l.mu.Unlock()
	if x.route == nil {
		return nil
	}
	faults := x.check()
	l.record.keep(x)
	if x.answer.value != nil {
		l.kinds.note(x.route.pattern, x.who, x.answer.value)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(x)
	return faults
}

// check compares an exchange with the file. What succeeds must be allowed by it; what is
// refused as malformed must not be, unless a rule in words forbids it.
func (x exchange) check() (faults []string) {
	r, a := x.route, x.answer
	for _, fault := range r.checkAnswer(a.code, a.header.Get("Content-Type"), a.body) {
		faults = append(faults, "the answer is not as the file says: "+fault)
	}
	switch asks := x.asked.faults; {
	case x.unread:
	case a.well() && len(asks) > 0:
		faults = append(faults, "the file forbids the request, and it was carried out: "+strings.Join(asks, "; "))
	case a.code == 400 && len(asks) == 0 && !x.rule:
		_, message := a.message()
		faults = append(faults, "the file allows the request, and it was refused as malformed: "+message)
	}
	if _, message := a.message(); a.code == http.StatusInternalServerError &&
		message != "Internal error (request "+a.header.Get("X-Request-Id")+")" {
		faults = append(faults, "the answer to an internal error says "+message)
	}
	for _, fault := range faults {
		if strings.Contains(fault, "the answer") {
			return append(faults, "it was: "+short(string(a.body), 600))
		}
	}
	return faults
}

// count records what an exchange covered. The lock is held.
func (l *coverage) count(x exchange) {
	note := func(key string, good bool) {
		m := l.met[key]
		if m == nil {
			m = &marks{}
			l.met[key] = m
		}
		if good {
			m.good++
		} else {
			m.bad++
		}
	}
	well := x.answer.well()
	if x.unread {
		return
	}
	note(x.route.pattern, well)
	given := x.asked.given(x.route)
	if well {
		for _, name := range given {
			note(x.route.pattern+" "+name, true)
		}
		return
	}
	_, message := x.answer.message()
	for _, name := range x.route.counted() {
		sent := slices.Contains(given, name)
		if x.refuses == name || (x.refuses == "" && (sent || missing(x, name)) && names(message, name)) {
			note(x.route.pattern+" "+name, x.route.refused(name) && x.answer.code == http.StatusOK)
		}
	}
}

// only records the refusal of a method that a path does not have: the one call that can be refused
// of routes without parameters.
func (l *coverage) only(s *spec, path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range s.routes {
		if r.path != path || len(r.params) > 0 {
			continue
		}
		if l.met[r.pattern] == nil {
			l.met[r.pattern] = &marks{}
		}
		l.met[r.pattern].bad++
	}
}

// missing reports whether a parameter is required and was not given.
func missing(x exchange, name string) bool {
	outer, _, _ := strings.Cut(strings.TrimSuffix(name, "[]"), ".")
	outer = strings.TrimSuffix(outer, "[]")
	return slices.ContainsFunc(x.asked.faults, func(f string) bool { return strings.HasPrefix(f, outer+":") })
}

// names reports whether a message calls a parameter by its name.
func names(message, name string) bool {
	last := name[strings.LastIndexAny(name, ".]")+1:]
	return regexp.MustCompile(`(^|[^A-Za-z_])` + regexp.QuoteMeta(last) + `([^A-Za-z_]|$)`).MatchString(message)
}

// claim records that a case has covered a row ("+row") or its refusal ("-row").
func (l *coverage) claim(claims []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range claims {
		row := c[1:]
		if l.rows[row] == nil {
			l.rows[row] = &marks{}
		}
		if c[0] == '+' {
			l.rows[row].good++
		} else {
			l.rows[row].bad++
		}
	}
}

// counts is how much of something was covered.
type counts struct {
	Met, All int
	Missing  []string
}

func (t *counts) add(key string, m *marks) {
	t.All++
	switch {
	case m.whole():
		t.Met++
	case m == nil || m.good == 0 && m.bad == 0:
		t.Missing = append(t.Missing, key+": never")
	case m.good == 0:
		t.Missing = append(t.Missing, key+": never with success")
	default:
		t.Missing = append(t.Missing, key+": never refused")
	}
}

func (t counts) String() string { return fmt.Sprintf("%d/%d", t.Met, t.All) }

// sum returns how much of the file and of the rows was covered.
func (l *coverage) sum(s *spec, rows []row) (routes, params, claimed counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.routes)) {
		r := s.routes[key]
		routes.add(key, l.met[key])
		for _, name := range r.counted() {
			params.add(key+" "+name, l.met[key+" "+name])
		}
	}
	for _, row := range rows {
		claimed.add(row.id, l.rows[row.id])
	}
	return routes, params, claimed
}
