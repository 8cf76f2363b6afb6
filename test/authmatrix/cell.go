package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// verdict is the expected result of a request.
type verdict string

// The verdicts.
const (
	unknownCaller verdict = "401"
	forbidden     verdict = "403"
	reached       verdict = "reached"
	limited       verdict = "401 or 429"      // of a caller that guesses
	closed        verdict = "401, 404 or 405" // not on this interface
	otherHost     verdict = "403 for its Host"
)

// unauthenticated is the whole response to a caller without a valid credential.
const unauthenticated = `{"status":"FAIL","message":"Authentication Required"}` + "\n"

// expect returns the expected result of a caller for a row of a site.
func (s *deployment) expect(r row, c caller) verdict {
	d := s.sides[r.service]
	refused := unknownCaller
	if c.guessing && d.auth {
		refused = limited
	}
	linked := func(opens bool) verdict {
		if opens {
			return reached
		}
		return refused
	}
	switch {
	case c.rebound:
		return otherHost
	case r.needs == nodeOnly, r.needs == nodeOrKnown && !d.auth:
		return linked(c.linked)
	case r.needs == joining && !d.auth:
		return unknownCaller
	case r.needs == open, !d.auth:
		return reached
	case r.needs == nodeOrKnown:
		return linked(c.known || c.linked)
	case !c.known:
		return refused
	case c.root, r.needs == anybody:
		return reached
	case c.scope != nil:
		return expectOfToken(r, c.scope)
	case r.needs == rootOnly:
		return forbidden
	case (d.permissions || c.fixed) && !slices.Contains(c.has, r.permission()):
		return forbidden
	case r.also != "" && s.sides[registry].permissions && !slices.Contains(c.there, r.also):
		return forbidden
	}
	return reached
}

// expectOfToken returns the expected result of a registry token for a row.
func expectOfToken(r row, c *scope) verdict {
	kind, open := ordered[r.pattern]
	switch {
	case !open:
		return forbidden
	case slices.Contains(c.orders, kind):
		return reached
	case c.asksAgain:
		return unknownCaller
	}
	return forbidden
}

// onSite returns a row as it is on a site: a disabled route is an unknown path there.
func (s *deployment) onSite(r row) row {
	if !s.sides[r.service].has(r.when) {
		r.needs, r.wants = anybody, http.StatusNotFound
	}
	return r
}

// ask tries a cell at an address and describes what is wrong with the response; "" for nothing.
func (s *deployment) ask(ctx context.Context, address string, r row, c caller, want verdict) (fault string) {
	body := strings.ReplaceAll(s.named(r.body, c), "NODE", cmp.Or(c.node, s.node.id))
	a, err := send(ctx, c.by, r.method+" "+address+s.named(r.path, c), body, c.header...)
	if err != nil {
		return err.Error()
	}
	if fault := compare(a, r, want); fault != "" {
		return fmt.Sprintf("%s, and %s was expected: %d %.200s", fault, want, a.code, strings.TrimSpace(string(a.body)))
	}
	return ""
}

// compare compares a response with the expected result.
func compare(a answer, r row, want verdict) string {
	e := a.envelope()
	switch {
	case a.code >= http.StatusInternalServerError && a.code != http.StatusServiceUnavailable:
		return "it failed"
	case want == limited && a.code == http.StatusTooManyRequests && e.Status == "FAIL":
		return ""
	case want == closed && (a.code == http.StatusNotFound || a.code == http.StatusMethodNotAllowed):
		return ""
	case want == otherHost:
		if a.code != http.StatusForbidden || e.Status != "FAIL" ||
			!strings.Contains(e.Message, "does not answer for the host") {
			return "it was not refused for its Host"
		}
		return ""
	case want == unknownCaller, want == limited, want == closed:
		return refusal(a)
	case want == forbidden:
		name := r.permission()
		if r.needs == rootOnly {
			name = "root"
		}
		switch {
		case a.code != http.StatusForbidden || e.Status != "FAIL":
			return "it was not refused as it should be"
		case !slices.Contains(strings.Fields(e.Message), name) &&
			(r.also == "" || !slices.Contains(strings.Fields(e.Message), r.also)):
			return "the message does not name " + name
		}
		return ""
	}
	return arrival(a, r)
}

// refusal checks the response to an unauthenticated caller: always the same bytes.
func refusal(a answer) string {
	switch {
	case a.code != http.StatusUnauthorized:
		return "it was not refused as it should be"
	case !bytes.Equal(a.body, []byte(unauthenticated)):
		return "the text is another one"
	case !strings.HasPrefix(a.header.Get("Content-Type"), "application/json"):
		return "its type is " + a.header.Get("Content-Type")
	}
	return ""
}

// arrival checks a response that must be the handler's.
func arrival(a answer, r row) string {
	e := a.envelope()
	page := strings.HasPrefix(a.header.Get("Content-Type"), "text/html")
	switch {
	case r.wants != 0 && a.code != r.wants:
		return fmt.Sprintf("%d it should be", r.wants)
	case r.wants != 0:
		return ""
	case (a.code == http.StatusUnauthorized || a.code == http.StatusForbidden) && (r.needs != open || !page):
		return "it was refused"
	case strings.HasPrefix(e.Message, "No such route"), a.code == http.StatusMethodNotAllowed:
		return "there is no such route"
	}
	return ""
}
