package registryrest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestTransferProtocol: the begin of a push or pull of another protocol is refused with both versions and a remedy.
func TestTransferProtocol(t *testing.T) {
	s := serve(t)
	pushEmpty(t, s, id, "base", "v1")
	for _, tt := range []struct{ version, want string }{
		{"", ""},
		{"1", ""},
		{"2", "Transfer protocol version 2 is not supported: this registry supports version 1; update the registry"},
		{"-1", "Transfer protocol version -1 is not supported: this registry supports version 1; update buildnode"},
		{"new", "must be a number"},
	} {
		for method, body := range map[string]string{
			http.MethodGet:  "",
			http.MethodPost: `{"id":"` + id + `","tag":"v2","config":{},"files":[]}`,
		} {
			got := begin(t, s.URL, tt.version, method, body)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("%s with protocol %q: %q, want %q", method, tt.version, got, tt.want)
			}
		}
	}
}

// begin begins a pull by GET or a push by POST, with the version of the protocol unless that is "", and returns the
// message of the answer; "" for success.
func begin(t *testing.T, base, version, method, body string) string {
	t.Helper()
	path := map[string]string{http.MethodGet: "/registry/v2/pull?tag=v1&id=" + id, http.MethodPost: "/registry/v2/push"}
	req, err := http.NewRequestWithContext(t.Context(), method, base+path[method], strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if version != "" {
		req.Header.Set(api.TransferHeader, version)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer api.Envelope[json.RawMessage]
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer.Message
}
