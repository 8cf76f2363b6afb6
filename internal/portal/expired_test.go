package portal_test

import (
	"net/url"
	"testing"
)

// TestExpiredLogIn: a user whose login has expired is redirected to a new one by every page and by
// every change, also by those that continue where a part of them fails.
func TestExpiredLogIn(t *testing.T) {
	w := newGuarded(t)
	for _, path := range []string{
		"/instances/start", "/instances/end?chosen=a", "/nodes/drain?chosen=a", "/keys/create", "/nodes/join",
	} {
		w.get(path).leadsTo("/login?return=" + url.QueryEscape(path))
	}
	for path, area := range map[string]string{
		"/instances/end": "/instances", "/nodes/drain": "/nodes", "/permission-groups/edit": "/permission-groups",
		"/instances/start": "/instances",
	} {
		s := w.post(path, url.Values{"chosen": {"a"}, "name": {"a"}, "service": {"controller"}, "vmid": {debian}})
		s.leadsTo("/login?return=" + url.QueryEscape(area))
	}
}
