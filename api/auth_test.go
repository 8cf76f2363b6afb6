package api

import (
	"encoding/json"
	"testing"
	"time"
)

// TestHandshakeAsClientsReadIt holds the names that clients look for.
func TestHandshakeAsClientsReadIt(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, v := range map[string]any{
		`{"id":"ci","data":{"userName":"ci","sessionId":"s","token":"t"}}`: ShakeAnswer{"ci", Session{"ci", "s", "t"}},
		`{"id":"ci","secret":"x"}`: ShakeRequest{"ci", "x"},
		`{"id":"ci"}`:              HandRequest{"ci"},
		`{"id":"ci","groups":["a"],"expiration":"2030-01-02T03:04:05Z","created":"2030-01-02T03:04:05Z"}`: Key{
			"ci", []string{"a"}, at, at,
		},
		`{"id":"n","type":"node","permissions":["list"]}`: Resource{
			ID: "n", Type: "node", Permissions: []string{"list"},
		},
	} {
		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}
