package imagescan

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan"
)

// A failure of one version does not affect the results of others; a failure of the registry is met
// once.
func TestAttachOthers(t *testing.T) {
	ids := []string{
		"c0847bc9-5d2d-4dbc-ba6a-240f7ff08031", "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032",
		"c0847bc9-5d2d-4dbc-ba6a-240f7ff08033", "c0847bc9-5d2d-4dbc-ba6a-240f7ff08034",
	}
	answers := map[int]string{
		200: `{"status": "OK"}`, 401: `{"status": "FAIL"}`, 403: `{"status": "FAIL"}`,
		404: `{"status": "FAIL", "message": "VM not in the registry"}`,
		405: `{"status": "FAIL"}`, 409: `{"status": "FAIL"}`,
	}
	for name, c := range map[string]struct {
		status                []int // status of each template; 0: no request is made
		attached, told, exits int
	}{
		"all":              {[]int{200, 200, 200, 200}, 4, 0, cli.ExitOK},
		"pushed meanwhile": {[]int{409, 200, 409, 200}, 2, 2, cli.ExitOK}, // the status of any failure
		"one is gone":      {[]int{200, 409, 404, 200}, 2, 2, cli.ExitNotFound},
		"one is denied":    {[]int{403, 200, 200, 200}, 3, 1, cli.ExitDenied},
		"an old registry":  {[]int{405, 0, 0, 0}, 0, 1, cli.ExitOK},
		"nobody is known":  {[]int{401, 0, 0, 0}, 0, 1, cli.ExitDenied},
	} {
		asked := 0
		registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status[asked])
			_, _ = w.Write([]byte(answers[c.status[asked]]))
			asked++
		}))
		defer registry.Close()
		to, err := client.NewRegistry(registry.URL, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var found []scanResult
		for _, id := range ids {
			found = append(found,
				scanResult{inventory: &scan.Inventory{
					Source: scan.Source{Type: scan.Template, Target: id + ":v0"}, ID: id, Tag: "v0",
				}})
		}
		var said bytes.Buffer
		err = (&attachOptions{registryURL: registry.URL, client: to}).attachAll(t.Context(),
			&globals{Streams: cli.Streams{Err: &said}}, found)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if strings.Count(text, "attach the results of") != c.told ||
			strings.Count(said.String(), "Results attached to") != c.attached || cli.CodeOf(err) != c.exits {
			t.Errorf("%s: %v, %d, %q", name, err, cli.CodeOf(err), said.String())
		}
	}
}
