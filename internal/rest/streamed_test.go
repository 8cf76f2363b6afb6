package rest

import (
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLong: the response is complete, compressed or not; an interrupted one does not look complete.
func TestLong(t *testing.T) {
	text := `["` + strings.Repeat("x", 200_000) + `"]`
	broken := false
	s := httptest.NewServer(Handler(
		[]Route{{
			Pattern: "GET /long", Permission: NoCredential,
			HandleRaw: func(w http.ResponseWriter, r *http.Request) error {
				WriteStreamed(w, r, "tag", func(out io.Writer) error {
					if _, err := io.WriteString(out, text); err != nil || !broken {
						return err
					}
					return errors.New("broken")
				})
				return nil
			},
		}}, slog.New(slog.DiscardHandler)))
	defer s.Close()
	for _, coding := range []string{"identity", "gzip"} {
		for _, broken = range []bool{false, true} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/long", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", coding)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				if !broken {
					t.Error(err)
				}
				continue
			}
			if packed := resp.Header.Get("Content-Encoding") == "gzip"; packed != (coding == "gzip") ||
				resp.Header.Get("Etag") != `W/"tag"` {
				t.Errorf("%s: %v", coding, resp.Header)
			}
			body := io.Reader(resp.Body)
			if coding == "gzip" {
				if body, err = gzip.NewReader(resp.Body); err != nil {
					t.Fatal(err)
				}
			}
			raw, err := io.ReadAll(body)
			resp.Body.Close()
			if (err != nil) != broken || !broken && string(raw) != envelopeStart+text+envelopeEnd {
				t.Errorf("%s, broken %t: %d bytes, %v", coding, broken, len(raw), err)
			}
		}
	}
}

// TestLongWithoutItsBody: a client that has the response already, or requests its head, gets no body.
func TestLongWithoutItsBody(t *testing.T) {
	for method, code := range map[string]int{http.MethodHead: http.StatusOK, http.MethodGet: http.StatusNotModified} {
		r := httptest.NewRequestWithContext(t.Context(), method, "/long", nil)
		if method == http.MethodGet {
			r.Header.Set("If-None-Match", `W/"tag"`)
		}
		w := httptest.NewRecorder()
		WriteStreamed(w, r, "tag", func(io.Writer) error { t.Error("the body is made"); return nil })
		if w.Code != code || w.Body.Len() != 0 || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %d with %d bytes, %v", method, w.Code, w.Body.Len(), w.Header())
		}
	}
}
