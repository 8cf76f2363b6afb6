package registryrest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

const scanPath = "/registry/v2/vm/scan?id=" + id

// scanText returns a valid body, in which one field is replaced: also "high" of its counts.
func scanText(more string) string {
	return `{"scanner":"imagescan","version":"1.0","database":"2026-01-02T03:04:05Z","scanned":"2026-02-03T04:05:06.789+01:00",` +
		`"counts":{"critical":1,"high":2,"medium":3,"low":4,"unknown":5,"packages":6},"report":{"matches":[{"id":"CVE-1"}]}` + more + `}`
}

// TestScanRoutes: results are stored, shown in short and in full, and removed. Both versions have the same
// content.
func TestScanRoutes(t *testing.T) {
	s := serve(t)
	for _, tag := range []string{"v1", "a+b c/d#e:f"} {
		pushEmpty(t, s, id, "debian", tag)
	}
	if a := send(t, s, "GET", scanPath, ""); a.code != 200 || a.Message != "Not found" {
		t.Error(a.raw)
	}
	if a := send(t, s, "PUT", scanPath+"&tag=a%2Bb%20c/d%23e:f",
		" \n"+scanText(`,"partial":true,"content_id":null,"more":[{}]`)+"\n"); a.code != 200 ||
		a.raw != `{"status":"OK","message":""}`+"\n" {
		t.Fatal(a.raw)
	}
	const short = `"scanner":"imagescan","version":"1.0","database":"2026-01-02T03:04:05Z","scanned":"2026-02-03T03:05:06Z","partial":true,` +
		`"counts":{"critical":1,"high":2,"medium":3,"low":4,"unknown":5,"packages":6}`
	for _, ask := range []string{"", "&tag=v1", "&number=1", "&version=1", "&tag=a%2Bb%20c/d%23e:f"} {
		a := send(t, s, "GET", scanPath+ask, "")
		var got api.TemplateScan
		if err := json.Unmarshal(a.Body, &got); err != nil ||
			!strings.HasPrefix(string(a.Body), "{"+short+`,"content_id":"`) ||
			string(got.Report) != `{"matches":[{"id":"CVE-1"}]}` {
			t.Errorf("%s: %s", ask, a.raw)
		}
	}
	for path, want := range map[string]int{"/registry/v2/vm": 0, "/registry/v2/vm?id=" + id: 2, "/registry/vm?id=" +
		id: 0} {
		if a := send(t, s, "GET", path, ""); strings.Count(a.raw, `"scan":{`+short+`}`) != want {
			t.Errorf("%s: %s", path, a.raw)
		}
	}
	if a := send(t, s, "DELETE", scanPath, ""); a.code != 200 ||
		a.raw != `{"status":"OK","message":"","body":null}`+"\n" {
		t.Error(a.raw)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if a := send(t, s, method, scanPath, ""); a.code != 200 || a.Message != "Not found" {
			t.Error(a.raw)
		}
	}
}

// TestScanRefusals: an error is reported by name, and nothing is attached.
func TestScanRefusals(t *testing.T) {
	s := serve(t)
	pushEmpty(t, s, id, "debian", "v1")
	without := func(field string) string {
		var all map[string]json.RawMessage
		if err := json.Unmarshal([]byte(scanText("")), &all); err != nil {
			t.Fatal(err)
		}
		delete(all, field)
		raw, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	const none, time = "The request body is not a JSON object", "must be a time such as 2026-01-31T12:00:00Z"
	other := strings.Repeat("0", 64)
	for _, c := range []struct {
		query, body string
		code        int
		message     string // its beginning
	}{
		{"?", scanText(""), 400, "id: is required"},
		{"?id=x", scanText(""), 200, "Not found"},
		{"?id=" + none[:0] + other[:8] + "-0000-4000-8000-000000000001", scanText(""), 200, "Not found"},
		{"?tag=no", scanText(""), 400, "Did not find any versions with tag no"},
		{"?number=many", scanText(""), 400, "number: must be an integer"},
		{"", "", 400, none},
		{"", "null", 400, none},
		{"", "[]", 400, none},
		{"", `{"`, 400, none},
		{"", scanText("")[:100], 400, none},
		{"", scanText("") + "{}", 400, none},
		{"", scanText("") + "x", 400, none},
		{"", strings.Replace(scanText(""), `"matches":`, `"matches"`, 1), 400, none},
		{"", scanText(`,"report":{}`), 400, "report: occurs twice"},
		{"", without("report"), 400, "report: is required"},
		{"", without("scanner"), 400, "scanner: is required"},
		{"", without("version"), 400, "version: is required"},
		{"", without("database"), 400, "database: is required"},
		{"", without("scanned"), 400, "scanned: is required"},
		{"", without("counts"), 400, "counts: must be an object"},
		{"", scanText(`,"scanner":1`), 400, "scanner: must be a string"},
		{"", scanText(`,"scanner":"` + strings.Repeat("x", 101) + `"`), 400, "scanner: must have 1 to 100 bytes"},
		{"", scanText(`,"scanner":"` + strings.Repeat("x", 5000) + `"`), 400, "scanner: has more than 4096 bytes"},
		{"", scanText(`,"version":"a\nb"`), 400, "version: must have 1 to 100 bytes"},
		{"", scanText(`,"database":"yesterday"`), 400, "database: " + time},
		{"", scanText(`,"scanned":5`), 400, "scanned: " + time},
		{"", scanText(`,"partial":"maybe"`), 400, "partial: must be true or false"},
		{"", scanText(`,"counts":[]`), 400, "counts: must be an object"},
		{"", scanText(`,"counts":{"critical":1,"high":1}`), 400, "counts.medium: is required"},
		{"", strings.Replace(scanText(""), `"high":2`, `"high":-1`,
			1), 400, "counts.high: must be an integer between 0 and"},
		{"", strings.Replace(scanText(""), `"high":2`, `"high":1.5`, 1), 400, "counts.high: must be an integer"},
		{"", strings.Replace(scanText(""), `"low":4`, `"low":1e99`, 1), 400, "counts.low: must be an integer"},
		{"", strings.Replace(scanText(""), `"low":4`, `"low":null`, 1), 400, "counts.low: is required"},
		{"", scanText(`,"content_id":"` + other + `"`), 409, "The content of the version has changed: " + other +
			" was scanned, it now has "},
		{"", scanText(`,"content_id":7`), 400, "content_id: must be a string"},
		{"", strings.Replace(scanText(""), `{"matches":[{"id":"CVE-1"}]}`, `[]`,
			1), 400, "report: must be a JSON object"},
		{"", strings.Replace(scanText(""), `{"matches":[{"id":"CVE-1"}]}`, `null`,
			1), 400, "report: must be a JSON object"},
		{"", strings.Replace(scanText(""), `"CVE-1"`, strings.Repeat("[", 101)+strings.Repeat("]", 101),
			1), 400, "The request body is nested more than 100 levels deep"},
		{
			"", scanText(`,"more":` + strings.Repeat(`{"a":`, 1_000_000)), 400,
			"The request body is nested more than 100 levels deep",
		},
	} {
		path := scanPath
		if c.query != "" && strings.HasPrefix(c.query, "?t") || strings.HasPrefix(c.query, "?n") {
			path += "&" + c.query[1:]
		} else if c.query != "" {
			path = strings.TrimSuffix("/registry/v2/vm/scan"+c.query, "?")
		}
		a := send(t, s, "PUT", path, c.body)
		if a.code != c.code || a.Status != "FAIL" || !strings.HasPrefix(a.Message, c.message) {
			t.Errorf("%s %.80s: %d %s; want %s", c.query, c.body, a.code, a.Message, c.message)
		}
	}
	if a := send(t, s, "GET", scanPath, ""); a.Message != "Not found" {
		t.Error(a.raw)
	}
}

// TestScanReports: a report comes back as it was, and the envelope around it holds.
func TestScanReports(t *testing.T) {
	s := serve(t)
	pushEmpty(t, s, id, "debian", "v1")
	for name, report := range map[string]string{
		"empty":    `{}`,
		"values":   `{"a":null,"b":[true,false,[],{}],"c":-1.50e+3,"d":123456789012345678901234567890,"e":"<&>\u0000\"\\"}`,
		"of a lot": `{"l":["` + strings.Repeat(`x","`, 200_000) + `"]}`,
		"repeated": `{"a":1,"a":2}`,
	} {
		spaced := strings.NewReplacer(",", " ,\n", ":", " : ").Replace(report)
		if a := send(t, s, "PUT", scanPath,
			strings.Replace(scanText(""), `{"matches":[{"id":"CVE-1"}]}`, spaced, 1)); a.Status != "OK" {
			t.Fatalf("%s: %.200s", name, a.raw)
		}
		a := send(t, s, "GET", scanPath, "")
		var got api.TemplateScan
		if err := json.Unmarshal(a.Body, &got); err != nil || string(got.Report) != report {
			t.Errorf("%s: %.200s, %v", name, got.Report, err)
		}
	}
}

// TestScanCaches: the response has a tag that differs for other results, is compressed for clients that accept
// it, and has a head without a body.
func TestScanCaches(t *testing.T) {
	s := serve(t)
	pushEmpty(t, s, id, "debian", "v1")
	ask := func(method, header, value string) (*http.Response, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+scanPath, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, value)
		resp, err := (&http.Transport{DisableCompression: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, raw
	}
	tags := map[string]bool{}
	for _, more := range []string{"", `,"partial":true`, `,"partial":false`} {
		if a := send(t, s, "PUT", scanPath, scanText(more)); a.Status != "OK" {
			t.Fatal(a.raw)
		}
		resp, plain := ask("GET", "Accept", "*/*")
		tag := resp.Header.Get("Etag")
		tags[tag] = true
		if again, raw := ask("GET", "If-None-Match", tag); again.StatusCode != http.StatusNotModified || len(raw) > 0 ||
			tag == "" {
			t.Errorf("%s: %d", tag, again.StatusCode)
		}
		packed, raw := ask("GET", "Accept-Encoding", "gzip")
		zip, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(zip); err != nil || !bytes.Equal(got, plain) ||
			packed.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("packed: %s, %v", got, err)
		}
		if head, raw := ask("HEAD", "Accept", "*/*"); head.StatusCode != http.StatusOK || len(raw) > 0 ||
			head.Header.Get("Etag") != tag {
			t.Errorf("head: %d, %d bytes", head.StatusCode, len(raw))
		}
	}
	if len(tags) != 2 {
		t.Errorf("tags %v", tags)
	}
}

// endless is a body that continues.
type endless struct{ head, more string }

func (e *endless) Read(p []byte) (n int, _ error) {
	for n < len(p) {
		if e.head == "" {
			e.head = e.more
		}
		k := copy(p[n:], e.head)
		e.head, n = e.head[k:], n+k
	}
	return n, nil
}

// TestScanBodyWithoutEnd: an endless body is refused as soon as it exceeds the limit, and takes little memory.
func TestScanBodyWithoutEnd(t *testing.T) {
	s := serve(t)
	pushEmpty(t, s, id, "debian", "v1")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	bodies := map[string]*endless{
		"a report":    {`{"report":{"a":[0`, `,"xyz"`},
		"white space": {`{"report":`, "        "},
	}
	for _, name := range fulltest.Some(t, 1, slices.Sorted(maps.Keys(bodies))) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+scanPath,
			io.LimitReader(bodies[name], 40<<20))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(raw), " has more than 33") {
			t.Errorf("%s: %d %s", name, resp.StatusCode, raw)
		}
	}
	runtime.ReadMemStats(&after)
	if more := int64(after.HeapSys) - int64(before.HeapSys); more > 64<<20 {
		t.Errorf("%d MiB more of heap", more>>20)
	}
}

// TestRightsOnScans: a caller that may push a tag may attach results, and one that may see the configuration
// may see them.
func TestRightsOnScans(t *testing.T) {
	v := newVault(t)
	const path = "/registry/v2/vm/scan?id="
	steps := []struct {
		method, right, want string
	}{{"PUT", "push_tag", "200 "}, {"GET", "get_config", "200 "}, {"DELETE", "push_tag", "200 "}}
	for _, step := range steps {
		body := ""
		if step.method == "PUT" {
			body = scanText("")
		}
		v.grant(nil)
		for _, one := range []string{first, second, none, "x"} {
			if got := v.says("dev", step.method+" "+path+one, body); got != "200 Not found" {
				t.Errorf("%s without rights: %s", step.method, got)
			}
		}
		v.grant(nil, "list")
		if got, want := v.says("dev", step.method+" "+path+first, body),
			fmt.Sprintf("403 You need the permission %s on the template FIRST", step.right); got != want {
			t.Errorf("%s: %s, want %s", step.method, got, want)
		}
		v.grant(nil, farm.Permission(step.right))
		if got := v.says("dev", step.method+" "+path+second, body); got != "200 Not found" {
			t.Errorf("%s of another one: %s", step.method, got)
		}
		if got := v.says("dev", step.method+" "+path+strings.ToUpper(first), body); got != step.want {
			t.Errorf("%s with the right: %s", step.method, got)
		}
	}
	for _, node := range []string{"node", "saving node"} {
		if a := v.call(node, "PUT "+path+first, scanText("")); a.code != 403 {
			t.Errorf("%s: %d %s", node, a.code, a.raw)
		}
	}
	v.grant([]farm.Permission{"push_vm"}, "push_tag", "list")
	if got := v.says("dev", "PUT "+path+first, scanText("")); got != "403 You need the permission push_vm" {
		t.Error(got)
	}
}

// TestScanUploadsAreLimited: one caller does not hold all places for results of scans.
func TestScanUploadsAreLimited(t *testing.T) {
	reg, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	limits := registryrest.Limits{ScanUploads: rest.NewConcurrencyLimit("uploads of scan results", "", 0)}
	s := httptest.NewServer(rest.Handler(registryrest.RoutesWithLimits(reg, limits), slog.New(slog.DiscardHandler)))
	t.Cleanup(func() {
		s.Close()
		_ = reg.Close()
	})
	a := send(t, s, "PUT", scanPath, "{}")
	if a.code != 429 || !strings.Contains(a.Message, "uploads of scan results") {
		t.Errorf("%d %s", a.code, a.raw)
	}
}
