package rest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// get calls a single route whose handler returns one result, with headers.
func get(method string, body any, header ...string) *httptest.ResponseRecorder {
	routes := []Route{{Pattern: method +
		" /x", Permission: NoCredential, Handle: func(*Request) (any, error) { return body, nil }}}
	r := httptest.NewRequest(method, "/x", nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return ask(routes, r).ResponseRecorder
}

func TestTags(t *testing.T) {
	bodies := map[string]any{
		"json": map[string]int{"a": 1}, "pieces": Fragments{[]byte("[1,"), []byte("2]")}, "null": Null,
		"long":        strings.Repeat("x", gzipMinBytes),
		"tagged":      WithETag{Body: Fragments{[]byte("[]")}, ETag: "x.1"},
		"tagged json": WithETag{Body: []int{1}, ETag: "x.2"},
	}
	for name, body := range bodies {
		first := get("GET", body)
		tag := first.Header().Get("Etag")
		if !strings.HasPrefix(tag, `W/"`) || first.Code != 200 {
			t.Fatalf("%s: %d, tag %q", name, first.Code, tag)
		}
		for _, value := range []string{tag, strings.TrimPrefix(tag, "W/"), `"other", ` + tag, "*"} {
			again := get("GET", body, "If-None-Match", value)
			if again.Code != http.StatusNotModified || again.Body.Len() > 0 || again.Header().Get("Etag") != tag ||
				again.Header().Get("Vary") != first.Header().Get("Vary") || again.Header().Get("Content-Type") != "" {
				t.Errorf("%s, %s: %d %q %v", name, value, again.Code, again.Body, again.Header())
			}
		}
		if again := get("GET", body, "If-None-Match", `"other"`); again.Code != 200 ||
			!bytes.Equal(again.Body.Bytes(), first.Body.Bytes()) {
			t.Errorf("%s: another tag answers %d", name, again.Code)
		}
		if posted := get("POST", body, "If-None-Match", "*"); posted.Code != 200 || posted.Header().Get("Etag") != "" {
			t.Errorf("%s: POST answers %d with tag %q", name, posted.Code, posted.Header().Get("Etag"))
		}
	}
	if a, b := get("GET", []int{1}), get("GET", []int{2}); a.Header().Get("Etag") == b.Header().Get("Etag") {
		t.Error("two bodies have one tag")
	}
	if a := get("GET", nil); a.Header().Get("Etag") != "" {
		t.Error("an answer without a body has a tag")
	}
	if a := get("GET", Fragments{make([]byte, maxTaggedBytes+1)}); a.Header().Get("Etag") != "" {
		t.Error("a huge answer has a tag")
	}
}

func TestGzip(t *testing.T) {
	long := strings.Repeat("x", gzipMinBytes)
	text, _ := json.Marshal(long)
	for name, body := range map[string]any{
		"json": long, "pieces": Fragments{text[:5], text[5:]}, "tagged": WithETag{Body: Fragments{text}, ETag: "t"},
	} {
		plain := get("GET", body)
		if plain.Header().Get("Content-Encoding") != "" || plain.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %v", name, plain.Header())
		}
		packed := get("GET", body, "Accept-Encoding", "br, gzip;q=0.5")
		if packed.Header().Get("Content-Encoding") != "gzip" || packed.Header().Get("Vary") != "Accept-Encoding" ||
			packed.Header().Get("Content-Type") != "application/json" ||
			packed.Header().Get("Etag") != plain.Header().Get("Etag") {
			t.Errorf("%s: %v", name, packed.Header())
		}
		unpack, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(unpack); err != nil || !bytes.Equal(got, plain.Body.Bytes()) {
			t.Errorf("%s: %v, %.60q", name, err, got)
		}
		for _, header := range []string{"gzip;q=0", "gzip; q=0.0", "deflate", "", "xgzip", "gzip;q=x"} {
			if a := get("GET", body, "Accept-Encoding", header); a.Header().Get("Content-Encoding") != "" ||
				!bytes.Equal(a.Body.Bytes(), plain.Body.Bytes()) {
				t.Errorf("%s: packed for %q", name, header)
			}
		}
		if a := get("POST", body, "Accept-Encoding", "gzip"); a.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: POST is packed", name)
		}
	}
	if a := get("GET", "short", "Accept-Encoding", "gzip"); a.Header().Get("Content-Encoding") != "" ||
		a.Header().Get("Vary") != "" {
		t.Error("a short answer is packed")
	}
}
