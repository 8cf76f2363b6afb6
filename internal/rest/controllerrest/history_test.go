package controllerrest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

func TestTimeToLive(t *testing.T) {
	c := newCloud(t)
	shown := func(id string) (raw string, i api.Instance) {
		t.Helper()
		a := c.call("GET", "/api/v1/vm?id="+id, "")
		a.into(t, &i)
		return string(a.Body), i
	}
	for field, want := range map[string]time.Duration{`"ttl":90`: 90 * time.Second, `"ttl":"90"`: 90 *
		time.Second, `"ttl":"2h"`: 2 * time.Hour} {
		if _, i := shown(c.start("," + field)); i.TTL != int64(want/time.Second) || i.Expires.Sub(i.CRTime) != want {
			t.Errorf("%s: ttl %d, expires %s after its creation", field, i.TTL, i.Expires.Sub(i.CRTime))
		}
	}
	for _, field := range []string{`"ttl":0`, `"ttl":null`, `"ttl":""`} {
		if raw, _ := shown(c.start("," + field)); strings.Contains(raw, "ttl") || strings.Contains(raw, "expires") {
			t.Errorf("%s: %s", field, raw)
		}
	}
	id := c.start(`,"ttl":"1h"`)
	c.call("PUT", "/api/v1/vm", `{"id":"`+id+`","ttl":"3h"}`)
	if _, i := shown(id); i.TTL != 10800 || time.Until(i.Expires) < 2*time.Hour {
		t.Errorf("renewed: %d, %s", i.TTL, i.Expires)
	}
	c.call("PUT", "/api/v1/vm", `{"id":"`+id+`","name":"other"}`)
	if _, i := shown(id); i.TTL != 10800 {
		t.Errorf("an update without ttl: %d", i.TTL)
	}
	c.call("PUT", "/api/v1/vm", `{"id":"`+id+`","ttl":0}`)
	if raw, _ := shown(id); strings.Contains(raw, "ttl") || strings.Contains(raw, "expires") {
		t.Errorf("lifted: %s", raw)
	}
	for _, bad := range []string{`-1`, `"soon"`, `"1500ms"`, `31536001`, `1.5`} {
		a := c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`","ttl":`+bad+`}`)
		if a.code != 400 || !strings.HasPrefix(a.Message, "ttl: ") {
			t.Errorf("%s: %d %q", bad, a.code, a.Message)
		}
	}
}

func TestHistory(t *testing.T) {
	c := newCloud(t)
	var ids []string
	for range 3 {
		id := c.start(`,"external_id":"http://ci/1","startup_script":"c2VjcmV0"`)
		ids = append(ids, id)
		c.call("DELETE", "/api/v1/vm", `{"id":"`+id+`"}`)
		var gone api.HistoryInstance
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			a := c.call("GET", "/api/v1/vm/history?id="+id, "")
			if a.Status == api.StatusOK {
				a.into(t, &gone)
				break
			}
			if a.code != 200 || a.Message != "Not found" || time.Now().After(end) {
				t.Fatalf("history: %d %s", a.code, a.Message)
			}
		}
		last := gone.Transitions[len(gone.Transitions)-1]
		if gone.InstanceID != id || gone.TemplateName != "base" || last.State != "Terminated" ||
			gone.Finished.IsZero() {
			t.Errorf("history = %+v", gone)
		}
	}
	list := func(query string) (got []string) {
		t.Helper()
		var past []api.HistoryInstance
		c.call("GET", "/api/v1/vm/history"+query, "").into(t, &past)
		for _, p := range past {
			got = append(got, p.InstanceID)
		}
		return got
	}
	for query, want := range map[string][]string{
		"": {ids[2], ids[1], ids[0]}, "?limit=1": {ids[2]}, "?after=" + ids[2]: {ids[1], ids[0]},
		"?external_id=http://ci/1&limit=2": {ids[2], ids[1]}, "?external_id=none": nil,
	} {
		if got := list(query); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	if a := c.call("GET", "/api/v1/vm/history?limit=0", ""); a.code != 400 {
		t.Errorf("limit=0: %d", a.code)
	}
	if a := c.call("GET", "/api/v1/vm/history", ""); strings.Contains(string(a.Body), "secret") ||
		strings.Contains(string(a.Body), "c2VjcmV0") {
		t.Errorf("a script is in the history: %s", a.Body)
	}
}
