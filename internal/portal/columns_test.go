package portal_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestColumns: the columns of a list are chosen by its address, and kept in a cookie of that list alone.
func TestColumns(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("mac", 1)
	for path, c := range map[string]struct{ usual, extra string }{
		"/nodes":     {">Free disk<", ">Hypervisor<"},
		"/templates": {">Size<", `<td class="dim mono">` + debian},
	} {
		id := map[string]string{"/nodes": "hypervisor", "/templates": "id"}[path]
		w.cookies = nil
		w.get(path).has(200, c.usual, "!"+c.extra, `name="cols" value="none"`, `value="`+id+`">`)
		chosen := w.get(path + "?cols=none&cols=" + id + "&cols=%3Cb%3E")
		chosen.has(200, "!"+c.usual, c.extra, `value="`+id+`" checked>`)
		w.cookies = (&http.Response{Header: chosen.Header}).Cookies()
		if len(w.cookies) != 1 || w.cookies[0].Value != "none."+id || w.cookies[0].Path != path ||
			!w.cookies[0].HttpOnly {
			t.Fatalf("%s: the cookies are %v", path, w.cookies)
		}
		later := w.get(path)
		later.has(200, c.extra, `data-saved="`+path[1:]+`"`)
		if len(later.Header.Values("Set-Cookie")) != 0 {
			t.Errorf("%s: a visit without a choice sets a cookie", path)
		}
		w.get(path+"?cols=none").has(200, "!"+c.extra)
		refresh := w.ask("GET", path+"?cols=none", nil, map[string]string{"HX-Request": "true"})
		if len(refresh.Header.Values("Set-Cookie")) != 0 {
			t.Errorf("%s: a refresh sets a cookie", path)
		}
		w.cookies = nil
		unknown := w.get(path + "?cols=x")
		unknown.has(200, c.usual)
		if len(unknown.Header.Values("Set-Cookie")) != 0 {
			t.Errorf("%s: a choice of unknown columns sets a cookie", path)
		}
	}
	w.cookies = []*http.Cookie{{Name: "columns-instances", Value: strings.Repeat("x", 600)}}
	w.get("/instances").has(200, "No instances")
}
