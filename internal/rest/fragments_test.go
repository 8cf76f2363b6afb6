package rest

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFragments(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, parts := range map[string][]string{
		"none":                  {"null"},
		"small":                 {"[", `"a"`, ",", `"b"`, "]"},
		"larger than a write":   {`["`, long(3 * writeBufferBytes), `","`, long(10), `"]`},
		"as large as a write":   {`"`, long(writeBufferBytes - 3), `"`},
		"many":                  append(append([]string{`"`}, strings.Split(long(3*writeBufferBytes), "")...), `"`),
		"one that just fits":    {`"` + long(writeBufferBytes-42-2) + `"`},
		"one that fits no more": {`"` + long(writeBufferBytes-42-1) + `"`},
	} {
		var pieces Fragments
		for _, p := range parts {
			pieces = append(pieces, []byte(p))
		}
		routes := []Route{{Pattern: "GET /x", Handle: func(*Request) (any, error) { return pieces, nil }}}
		server := httptest.NewServer(Handler(routes, slog.New(slog.DiscardHandler)))
		server.Client().Transport.(*http.Transport).DisableCompression = true
		resp, err := server.Client().Get(server.URL + "/x")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		server.Close()
		if err != nil || int(resp.ContentLength) != len(raw) || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v, %d of %d bytes", name, err, len(raw), resp.ContentLength)
		}
		old := httptest.NewRecorder()
		writeEnvelope(old, http.StatusOK, "OK", "", json.RawMessage(strings.Join(parts, "")))
		if !bytes.Equal(raw, old.Body.Bytes()) {
			t.Errorf("%s: %.80q instead of %.80q", name, raw, old.Body)
		}
	}
}
